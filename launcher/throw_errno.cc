#include "launcher/throw_errno.h"

#include <cerrno>

#include "core/base/error.h"
#include "core/base/error_text.h"

namespace hvd::launcher {

void throw_errno(const std::string& what) { throw Internal(what + ": " + error_text(errno)); }

}  // namespace hvd::launcher
