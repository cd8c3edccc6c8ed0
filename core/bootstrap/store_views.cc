#include "core/bootstrap/store_views.h"

#include <algorithm>

#include "core/base/error.h"

namespace hvd {

void PrefixStore::set(const std::string& key, const std::string& value) { inner_.set(prefix_ + key, value); }

std::string PrefixStore::get(const std::string& key, Deadline deadline) { return inner_.get(prefix_ + key, deadline); }

std::int64_t PrefixStore::add(const std::string& key, std::int64_t amount) { return inner_.add(prefix_ + key, amount); }

std::string WatchfulStore::get(const std::string& key, Deadline deadline) {
  for (;;) {
    try {
      return inner_.get(key, std::min(deadline, deadline_after(kAlarmPeriod)));
    } catch (const Timeout&) {
      alarm_();
      if (Clock::now() >= deadline) throw;
    }
  }
}

void WatchfulStore::check() {
  alarm_();
  inner_.check();
}

}  // namespace hvd
