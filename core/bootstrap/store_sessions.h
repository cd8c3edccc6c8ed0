// Connects the TcpStores of the ranks to a StoreSource. Has no thread: runs in its owner's event loop.
//
// Clients prove the job's key first (core/net/authentication.h); a client that breaks the protocol afterwards is
// dropped, and so is one that sends a request while its set or add is not answered. A get is cancelled when its client
// sends another request or leaves. Once the source reports that the store is lost, clients that ask are disconnected.
#pragma once

#include <memory>
#include <string>

#include "core/base/log.h"
#include "core/bootstrap/store_origin.h"
#include "core/net/authentication.h"

namespace hvd {

class StoreSessions {
 public:
  // Listens on the port, 0: a free one, of `bind_host` ("0.0.0.0": all interfaces). `source` and `log` must outlive
  // this. Throws InvalidArgument if it cannot listen there.
  StoreSessions(const JobKey& key, const std::string& bind_host, StoreSource& source, const Log& log,
                std::uint16_t port = 0);
  // Clients see PeerLost.
  ~StoreSessions();
  StoreSessions(const StoreSessions&) = delete;
  StoreSessions& operator=(const StoreSessions&) = delete;

  // With the host that was passed to the constructor.
  const Address& address() const;

  // Readable (level-triggered) when serve_now() has something to do, including timeouts of pending connections.
  // Borrowed.
  int fd() const;
  // Does not block. Throws Internal if it cannot continue.
  void serve_now();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
