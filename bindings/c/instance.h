// The one process-wide object: the Runtime behind the C interface, and the last error of each thread.
//
// Never destroyed: background threads and late callers may outlive main(). Everything else in hvd is an ordinary
// object that somebody owns.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>

#include "core/runtime/runtime.h"

namespace hvd {

class Instance {
 public:
  static Instance& get();

  // Joins the job that the environment describes; does nothing if initialised. Throws Error.
  void init();
  void shut_down();
  bool initialized() const;

  // Throws an Error with StatusCode::not_initialized. The caller's reference keeps the runtime alive.
  std::shared_ptr<Runtime> runtime() const;

  // Text of the calling thread's last failure.
  static std::string& last_error();

 private:
  Instance();

  mutable std::mutex mutex_;
  std::shared_ptr<Runtime> runtime_;  // guarded by mutex_
  pid_t owner_ = -1;                  // guarded by mutex_; a forked child is not the process that has initialised
  int epoch_ = 0;                     // guarded by mutex_; times that this process has initialised
};

}  // namespace hvd
