// The store of a job on one host, or of one without hvdrun: a thread that serves any number of TcpStores.
//
// Without traffic the thread sleeps. Processes that have an event loop already (hvdrun over many hosts, its agents) run
// StoreSessions in it instead.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "core/base/log.h"
#include "core/bootstrap/store_origin.h"
#include "core/bootstrap/store_sessions.h"
#include "core/net/authentication.h"

namespace hvd {

class StoreServer {
 public:
  // Listens like StoreSessions. `log` must outlive the server. Throws InvalidArgument if it cannot listen there.
  StoreServer(const JobKey& key, const std::string& bind_host, const Log& log, std::uint16_t port = 0);
  // Stops and joins the thread; clients see PeerLost.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // With the host that was passed to the constructor.
  const Address& address() const { return address_; }

 private:
  void run();

  const Log& log_;
  StoreOrigin origin_;
  std::unique_ptr<StoreSessions> sessions_;  // owned by the thread once it has started
  const Address address_;
  FileDescriptor stop_event_;
  std::thread thread_;
};

}  // namespace hvd
