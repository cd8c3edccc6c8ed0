#include "core/rendezvous/watchful_store.h"

#include <algorithm>

#include "core/base/error.h"

namespace hvd {

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
