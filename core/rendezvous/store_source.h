// Serves key-value requests of ranks: StoreOrigin owns the data; launcher/remote/store_relay.h forwards what it does
// not know. Used on the thread of its owner's event loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "core/rendezvous/store_protocol.h"

namespace hvd {

class StoreSource {
 public:
  // The text is valid during the call. PeerLost: the store is lost for all ranks, permanently. May call ask() and
  // forget(), but must not destroy the source.
  using Answer = std::function<void(StatusCode code, std::string_view text)>;
  // Identifies a request that waits for its answer; 0: none.
  using RequestId = std::uint64_t;

  virtual ~StoreSource() = default;

  // Answers once: before it returns (0 then), or later. The request's own id is ignored.
  virtual RequestId ask(StoreRequest request, Answer answer) = 0;

  // Cancels the answer. A set or add takes effect nevertheless. No effect if the request was answered.
  virtual void forget(RequestId request_id) = 0;
};

}  // namespace hvd
