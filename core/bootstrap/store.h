// A key/value map that all ranks of a job share, by which they find each other.
//
// Keys are set once per membership epoch: hosts cache the values that they have fetched
// (launcher/remote/store_relay.h), so that a key that is set again may have either value. Counters are never cached.
//
// A Store is a handle: copies, and those with a prefix or an alarm, refer to the same map. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/net/authentication.h"

namespace hvd {

// What the keys of an epoch begin with.
std::string epoch_prefix(int epoch);

class Store {
 public:
  // A new map in this process, for ranks that are its threads.
  Store();
  // Connects to the StoreServer of a job whose ranks are processes. One request at a time is in progress; calls from
  // several threads queue up. After PeerLost every later call fails with it too. Throws as connect_authenticated.
  static Store connect(const Address& address, const JobKey& key, int rank, Deadline deadline);

  // With a prefix before each key: each membership epoch has its own.
  Store with_prefix(const std::string& prefix) const;
  // With an alarm, besides those it has already, that ends waits. The alarm may use the store.
  Store with_alarm(Alarm alarm) const;

  void set(const std::string& key, std::string value) const;
  // Waits until the key exists. Throws Timeout that names the key, PeerLost if the store is gone, what an alarm throws.
  std::string get(const std::string& key, Deadline deadline) const;
  // Adds to a counter that starts at 0, and returns the new value.
  std::int64_t add(const std::string& key, std::int64_t amount) const;

  // For waits for another rank outside the store: calls all alarms. Valid as long as this object.
  const Alarm& alarm() const;
  // The numeric address at which the store's host reaches this host: a good one to listen on.
  const std::string& local_host() const;

 private:
  class Map;
  class LocalMap;
  class RemoteMap;

  Store(std::shared_ptr<Map> map, std::string local_host);

  std::shared_ptr<Map> map_;
  std::string local_host_;
  std::string prefix_;
  Alarm alarm_;
};

// Throws Aborted with the key's value, a cause, if the key is set or becomes so by the deadline. Does nothing if the
// store cannot answer.
void throw_cause_at(const Store& store, const std::string& key, Deadline deadline);

// The same if the job has failed (set_job_failure()). `store` has no prefix.
void check_job_failure(const Store& store, Deadline deadline);

}  // namespace hvd
