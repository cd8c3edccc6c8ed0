// The job's store: a thread that answers any number of TcpStores. hvdrun owns one per job.
//
// A get whose key is missing is parked until somebody sets the key, or the client asks something else or leaves.
// Clients prove the job's key first (core/net/authentication.h); whoever breaks the protocol afterwards is dropped.
// Without traffic the thread sleeps; it never wakes by itself.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "core/base/log.h"
#include "core/net/authentication.h"

namespace hvd {

class StoreServer {
 public:
  // Listens on the port, 0: a free one, of `bind_host` ("0.0.0.0": all interfaces). `log` must outlive the server.
  // Throws InvalidArgument if it cannot listen there.
  StoreServer(const JobKey& key, const std::string& bind_host, const Log& log, std::uint16_t port = 0);
  // Stops and joins the thread; clients see PeerLost.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // With the host as it was given to the constructor.
  const Address& address() const { return address_; }

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  Address address_;
  std::thread thread_;
};

}  // namespace hvd
