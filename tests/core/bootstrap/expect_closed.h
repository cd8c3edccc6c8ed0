// What a client sees of a store that has dropped it.
#pragma once

#include "core/base/error.h"
#include "core/net/frame.h"
#include "core/net/socket.h"
#include "tests/support/catch.h"

namespace hvd {

// Nothing more comes, not even one byte.
inline void expect_closed(Socket& socket) {
  Bytes one(1);
  CHECK_THROWS_AS(socket.receive_all(one, deadline_after(10s), "the store"), PeerLost);
}

}  // namespace hvd
