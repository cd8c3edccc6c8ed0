// Views of another store: with a prefix before each key, and with waits that an alarm ends.
#pragma once

#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/bootstrap/store.h"

namespace hvd {

// Each membership epoch has its own prefix.
class PrefixStore : public Store {
 public:
  // `inner` must outlive this view.
  PrefixStore(Store& inner, std::string prefix) : inner_(inner), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  void check() override { inner_.check(); }

 private:
  Store& inner_;
  const std::string prefix_;
};

// Waits end when the alarm throws.
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
