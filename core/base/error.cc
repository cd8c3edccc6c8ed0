#include "core/base/error.h"

#include <exception>
#include <new>

namespace hvd {

Status current_exception_status() {
  try {
    throw;
  } catch (const Error& error) {
    return error.status();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::internal, "out of memory");
  } catch (const std::exception& error) {
    return Status(StatusCode::internal, error.what());
  } catch (...) {
    return Status(StatusCode::internal, "an exception of unknown type");
  }
}

}  // namespace hvd
