#include "core/collective/work.h"

namespace hvd {

bool Work::wait(Deadline deadline) {
  set_awaited();
  return done_.wait_change(0, deadline, nullptr) != 0;
}

void Work::complete(Status status) {
  status_ = std::move(status);
  done_.store_and_wake(1);
}

}  // namespace hvd
