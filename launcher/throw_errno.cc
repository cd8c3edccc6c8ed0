#include "launcher/throw_errno.h"

#include <cerrno>
#include <system_error>

#include "core/base/error.h"

namespace hvd::launcher {

void throw_errno(const std::string& what) { throw Internal(what + ": " + std::generic_category().message(errno)); }

}  // namespace hvd::launcher
