// Any bytes as a response list: refused, or understood for good, and then fit to be planned and cached.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/control/protocol/response_cache.h"
#include "core/control/protocol/wire.h"
#include "core/execution/bucket.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  hvd::ResponseList message;
  try {
    message = hvd::decode_response_list(bytes);
  } catch (const hvd::Internal&) {
    return 0;
  }
  const hvd::Bytes written = hvd::encode(message);
  if (!std::equal(written.begin(), written.end(), bytes.begin(), bytes.end())) __builtin_trap();

  hvd::ResponseCache cache;
  std::vector<const hvd::Response*> executes;
  for (const auto& entry : message.entries) {
    if (!entry.response || entry.response->kind != hvd::Response::Kind::execute) continue;
    executes.push_back(&*entry.response);
    const std::uint32_t slot = entry.response->slot;
    if (slot == hvd::kNoSlot) continue;
    cache.store(std::make_shared<const hvd::Response>(*entry.response), &entry.response->spec);
    if (cache.at(slot)->spec.name != entry.response->spec.name) __builtin_trap();
  }
  std::size_t items = 0;
  for (const hvd::Bucket& bucket : hvd::plan_buckets(executes, 1 << 20)) items += bucket.items.size();
  std::size_t tensors = 0;
  for (const hvd::Response* response : executes) {
    tensors += response->spec.collective == hvd::Collective::barrier ? 1 : response->spec.tensors.size();
  }
  if (items != tensors) __builtin_trap();
  return 0;
}
