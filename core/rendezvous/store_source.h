// Who answers what ranks ask of the job's store: StoreOrigin, which has it, or launcher/store_relay.h, which passes on
// what it does not know. One thread, that of the event loop that it lives in.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "core/rendezvous/store_protocol.h"

namespace hvd {

class StoreSource {
 public:
  // The text is valid during the call. PeerLost: the store is gone, for everybody and for good. May ask and forget, but
  // not destroy the source.
  using Answer = std::function<void(StatusCode code, std::string_view text)>;
  // Of a request that waits for its answer; 0: none.
  using RequestId = std::uint64_t;

  virtual ~StoreSource() = default;

  // Answers once: before it returns (0 then), or later. The request's own id means nothing here.
  virtual RequestId ask(StoreRequest request, Answer answer) = 0;

  // Nobody wants the answer any more. What was to be set or added, is so all the same. Nothing happens if it was
  // answered.
  virtual void forget(RequestId request_id) = 0;
};

}  // namespace hvd
