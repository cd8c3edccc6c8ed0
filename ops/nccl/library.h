// NCCL, loaded at run time: its functions, and its errors as exceptions. Any thread, except as NCCL forbids.
#pragma once

#include <string>

#include "core/base/dynamic_library.h"
#include "ops/nccl/nccl_abi.h"

namespace hvd::nccl {

class Library {
 public:
  // `wanted`: a name or path; empty: the copy that is already in this process, loaded by a framework, otherwise
  // libnccl.so.2. Must be called after frameworks have been loaded: they would otherwise get our copy under the name of
  // theirs. Throws Unsupported with the reason.
  explicit Library(const std::string& wanted);

  const Table& call() const { return table_; }
  int version() const { return version_; }
  // Returns, for example, "NCCL 2.27.3, /usr/lib/libnccl.so.2".
  std::string describe() const;

  // Throws unless the result is a success or `in_progress`: PeerLost if NCCL reports another rank's failure, Internal
  // if it reports incorrect use by hvd, otherwise Aborted. `communicator` may be null.
  void check(Result result, const char* what, Handle communicator = nullptr) const;

 private:
  const DynamicLibrary library_;
  Table table_{};
  int version_ = 0;
};

// "2.27.3"
std::string version_text(int version);

}  // namespace hvd::nccl
