#include "core/bootstrap/job_failure.h"

#include "core/base/error.h"

namespace hvd {

namespace {

// In the job's store without an epoch's prefix.
constexpr const char* kKey = "job/failure";

}  // namespace

void set_job_failure(StoreSource& store, const std::string& cause) {
  store.ask({.operation = StoreOperation::set, .key = kKey, .value = cause}, [](StatusCode, std::string_view) {});
}

void check_job_failure(Store& store, Deadline deadline) {
  std::string cause;
  try {
    cause = store.get(kKey, deadline);
  } catch (const Error&) {
    return;
  }
  throw Aborted(cause);
}

}  // namespace hvd
