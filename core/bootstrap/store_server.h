// Serves a StoreSource to the Stores of the ranks, over TCP: StoreServer in an event loop of its owner,
// StoreServerThread by a thread of its own.
//
// Clients prove the job's key first (core/net/authentication.h); a client that breaks the protocol afterwards is
// dropped, and so is one that sends a request while its set or add is not answered. A get is cancelled when its client
// sends another request or leaves. Once the source reports that the store is lost, clients that ask are disconnected.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "core/base/log.h"
#include "core/bootstrap/store_origin.h"
#include "core/net/authentication.h"

namespace hvd {

class StoreServer {
 public:
  // Listens on the port, 0: a free one, of `bind_host` ("0.0.0.0": all interfaces). `source` and `log` must outlive
  // this. Throws InvalidArgument if it cannot listen there.
  StoreServer(const JobKey& key, const std::string& bind_host, StoreSource& source, const Log& log,
              std::uint16_t port = 0);
  // Clients see PeerLost.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

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

// The store of a job that hvdrun has not started: any number of Stores, and a thread that sleeps without traffic.
class StoreServerThread {
 public:
  // Listens like StoreServer. `log` must outlive the server. Throws InvalidArgument if it cannot listen there.
  StoreServerThread(const JobKey& key, const std::string& bind_host, const Log& log, std::uint16_t port = 0);
  // Stops and joins the thread; clients see PeerLost.
  ~StoreServerThread();
  StoreServerThread(const StoreServerThread&) = delete;
  StoreServerThread& operator=(const StoreServerThread&) = delete;

  // With the host that was passed to the constructor.
  const Address& address() const { return address_; }

 private:
  void run();

  const Log& log_;
  StoreOrigin origin_;
  std::unique_ptr<StoreServer> server_;  // owned by the thread once it has started
  const Address address_;
  FileDescriptor stop_event_;
  std::thread thread_;
};

}  // namespace hvd
