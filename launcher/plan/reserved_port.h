// Reserves a TCP port of this host for a server that a rank starts later, so that no other process gets it by chance.
//
// The port is bound with SO_REUSEADDR, without listen(): the kernel skips it when it chooses ports, connections to it
// are refused, and a server that binds it by number with SO_REUSEADDR, as servers do, gets it.
#pragma once

#include <cstdint>

#include "core/net/socket.h"

namespace hvd::launcher {

class ReservedPort {
 public:
  // Throws Error if no port can be bound.
  ReservedPort();
  std::uint16_t number() const { return number_; }

 private:
  FileDescriptor socket_;
  std::uint16_t number_ = 0;
};

}  // namespace hvd::launcher
