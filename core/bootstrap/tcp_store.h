// The store of a job whose ranks are processes: a connection to the StoreServer.
//
// One request at a time; calls from several threads queue up. After PeerLost every later call fails with it too.
#pragma once

#include "core/base/mutex.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/store_protocol.h"
#include "core/net/authentication.h"
#include "core/net/frame.h"

namespace hvd {

class TcpStore : public Store {
 public:
  // Throws Timeout or PeerLost, as connect_authenticated.
  TcpStore(const Address& address, const JobKey& key, int rank, Deadline deadline);

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

  // The numeric address at which the store's host reaches this host: a good one to listen on.
  const std::string& local_host() const { return local_host_; }

 private:
  std::string ask(StoreRequest request, Deadline deadline);
  StoreAnswer exchange(const StoreRequest& request, Deadline deadline);
  void send(const StoreRequest& request, Deadline deadline);
  StoreAnswer receive(const StoreRequest& request, Deadline deadline);

  const std::string name_;
  std::string local_host_;

  Mutex mutex_;
  CondVar free_;
  bool busy_ GUARDED_BY(mutex_) = false;  // the thread that set it owns what follows
  Socket socket_;
  FrameReader reader_;
  std::uint32_t last_id_ = 0;
};

}  // namespace hvd
