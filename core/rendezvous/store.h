// Where ranks meet before they know each other: a key/value map that all of them see.
//
// Keys are set once per membership epoch: hosts keep the values that they have fetched (launcher/store_relay.h), so
// that a key that is set again may read either way. Counters are always asked for. Implementations: MemoryStore (ranks
// that are threads), TcpStore (processes). Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/alarm.h"
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

  // Throws the reason if the job has failed, as far as the store has heard.
  virtual void check() {}
};

// For whoever waits for another rank elsewhere. The store outlives it.
inline Alarm alarm_of(Store& store) {
  return [&store] { store.check(); };
}

}  // namespace hvd
