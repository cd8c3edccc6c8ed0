// The channel over sockets: callers put their transfers into a list, and a thread, "hvd-channel", performs them
// (ChannelLoop). The thread is started with the first message, and sleeps while no transfer is pending.
//
// No lock is held while messages are transferred; callers and thread share only the list.
#pragma once

#include <memory>

#include "core/execution/backend.h"
#include "core/execution/channel.h"

namespace hvd {

// The context's references, including the store, outlive the channel.
std::unique_ptr<Channel> make_socket_channel(const BackendContext& context);

}  // namespace hvd
