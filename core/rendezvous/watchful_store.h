// A view of another store whose waits end when an alarm throws.
#pragma once

#include <utility>

#include "core/base/alarm.h"
#include "core/rendezvous/store.h"

namespace hvd {

class WatchfulStore : public Store {
 public:
  // `inner` must outlive this view. The alarm may call `inner`.
  WatchfulStore(Store& inner, Alarm alarm) : inner_(inner), alarm_(std::move(alarm)) {}

  void set(const std::string& key, const std::string& value) override { inner_.set(key, value); }
  // Throws what the alarm throws, too.
  std::string get(const std::string& key, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override { return inner_.add(key, amount); }
  void check() override;

 private:
  Store& inner_;
  const Alarm alarm_;
};

}  // namespace hvd
