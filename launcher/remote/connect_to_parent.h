// An agent's end: its connection to the parent that has started it.
#pragma once

#include <memory>

#include "core/base/clock.h"
#include "core/net/socket.h"
#include "launcher/loop/event_loop.h"
#include "launcher/remote/certificate.h"
#include "launcher/remote/link.h"

namespace hvd::launcher {

// Blocks until both ends have proved that they belong to the job. One try: a parent listens before it starts agents.
// Throws PeerLost or Timeout, which say with whom and why.
std::unique_ptr<LinkToParent> connect_to_parent(EventLoop& loop, const Certificate& certificate, const Address& parent,
                                                Deadline deadline);

}  // namespace hvd::launcher
