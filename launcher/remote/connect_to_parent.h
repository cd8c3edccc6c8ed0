// Connects an agent to the parent that has started it.
#pragma once

#include <memory>

#include "core/base/clock.h"
#include "core/net/socket.h"
#include "launcher/loop/event_loop.h"
#include "launcher/remote/certificate.h"
#include "launcher/remote/link.h"

namespace hvd::launcher {

// Blocks until both ends have authenticated. Tries once: a parent listens before it starts agents. Throws PeerLost or
// Timeout, with the address and the cause.
std::unique_ptr<LinkToParent> connect_to_parent(EventLoop& loop, const Certificate& certificate, const Address& parent,
                                                Deadline deadline);

}  // namespace hvd::launcher
