// A TCP port of this host for a server that one of the ranks starts: nobody else is given it by chance before.
//
// The port is bound and not listened at, with SO_REUSEADDR: the kernel passes over it when it chooses ports for others,
// connections there are refused, and who asks for it by its number and sets SO_REUSEADDR too, as servers do, gets it.
#pragma once

#include <cstdint>

#include "core/net/socket.h"

namespace hvd::launcher {

class ReservedPort {
 public:
  // Throws Error if there is none to be had.
  ReservedPort();
  std::uint16_t number() const { return number_; }

 private:
  FileDescriptor socket_;
  std::uint16_t number_ = 0;
};

}  // namespace hvd::launcher
