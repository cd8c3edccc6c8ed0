// The store's readers against any message: they refuse it, or what they read is written back as the same bytes.
#include <algorithm>
#include <cstdint>
#include <span>

#include "core/base/error.h"
#include "core/bootstrap/store_origin.h"
#include "core/bootstrap/store_protocol.h"

namespace {

void check_request(std::span<const std::byte> message) {
  hvd::StoreRequest request;
  try {
    request = hvd::parse_store_request(message);
  } catch (const hvd::Internal&) {
    return;
  }
  if (!std::ranges::equal(hvd::encode_store_request(request), message)) __builtin_trap();

  // What was accepted cannot harm the table either, twice over.
  hvd::StoreTable table(10'000);
  for (int i = 0; i < 2; ++i) {
    try {
      if (request.operation == hvd::StoreOperation::add) table.add(request.key, request.amount);
      if (request.operation == hvd::StoreOperation::set) table.set(request.key, request.value);
    } catch (const hvd::InvalidArgument&) {
    }
    table.find(request.key);
  }
}

void check_answer(std::span<const std::byte> message) {
  try {
    const hvd::StoreAnswer answer = hvd::parse_store_answer(message);
    if (!std::ranges::equal(hvd::encode_store_answer(answer.id, answer.code, answer.text), message)) __builtin_trap();
  } catch (const hvd::Internal&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = std::as_bytes(std::span(data, size));
  check_request(message);
  check_answer(message);
  return 0;
}
