// The TcpStores of the ranks, as connections to a StoreSource. No thread of its own: it lives in anybody's event loop.
//
// Clients prove the job's key first (core/net/authentication.h); whoever breaks the protocol afterwards is dropped, and
// so is a client that asks on while its set or add is not answered. A get is forgotten as soon as its client asks
// something else or leaves. Once the source says that the store is lost, whoever asks loses its connection.
#pragma once

#include <memory>
#include <string>

#include "core/base/log.h"
#include "core/net/authentication.h"
#include "core/rendezvous/store_source.h"

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

  // With the host as it was given to the constructor.
  const Address& address() const;

  // Readable (level-triggered) when serve_now() has something to do, strangers' deadlines included. Borrowed.
  int fd() const;
  // Does not block. Throws Internal if it can go on no longer.
  void serve_now();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
