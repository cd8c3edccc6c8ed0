// A key/value map that all ranks of a job share, by which they find each other.
//
// Keys are set once per membership epoch: hosts cache the values that they have fetched
// (launcher/remote/store_relay.h), so that a key that is set again may have either value. Counters are never cached.
// Implementations: MemoryStore (ranks that are threads), TcpStore (processes). Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/clock.h"

namespace hvd {

class Store {
 public:
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;

  // Waits until the key exists. Throws Timeout that names the key, PeerLost if the store is gone.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;

  // Adds to a counter that starts at 0, and returns the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;

  // Throws the reason if the job has failed, as far as the store knows.
  virtual void check() {}
};

// An alarm for waits for another rank outside the store. The store outlives it.
inline Alarm alarm_of(Store& store) {
  return [&store] { store.check(); };
}

}  // namespace hvd
