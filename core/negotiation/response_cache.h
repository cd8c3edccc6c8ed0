// The responses that a rank knows by number, so that a repeated operation is one bit to ask for and one number to
// be told.
//
// Pure; owned by the engine and used on its thread. The coordinator alone decides what goes into which slot: a rank
// stores what the messages say, in their order, and so every rank holds the same response in the same slot. What
// differs is the rank's own request (first dimensions, splits), kept here to recognise a repetition.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/negotiation/response.h"
#include "core/submission/operation_key.h"
#include "core/submission/request.h"

namespace hvd {

class ResponseCache {
 public:
  // The slot whose operation this rank asked for with exactly this request, if there is one.
  std::optional<std::uint32_t> find(const Request& own) const;

  // Keeps an execute response that came with a slot; replaces what the slot held. `own` is this rank's submission of
  // that name, null if it had none: find() then does not know the slot, at() does. Throws Internal
  // on a slot beyond kMaxCacheSlots.
  void store(std::uint32_t slot, std::shared_ptr<const Response> response, const Request* own);

  // Throws Internal if the slot holds nothing. Shared, since a later entry of the same message may replace the slot
  // while the response is still being carried out.
  std::shared_ptr<const Response> at(std::uint32_t slot) const;

 private:
  struct Slot {
    std::shared_ptr<const Response> response;
    std::optional<Request> own;
  };
  std::vector<Slot> slots_;
  OperationMap<std::uint32_t> by_key_;  // slots with an own request
};

}  // namespace hvd
