// NCCL, opened at run time: its functions, and its errors as ours. Any thread, but for what NCCL itself forbids.
#pragma once

#include <string>

#include "core/base/dynamic_library.h"
#include "ops/nccl/nccl_abi.h"

namespace hvd::nccl {

class Library {
 public:
  // `wanted`: a name or path; empty: the copy that is in this process already, which a framework brought along, else
  // libnccl.so.2. To be called when frameworks have been loaded: they would else get our copy under their own's name.
  // Throws Unsupported that says what is missing.
  explicit Library(const std::string& wanted);

  const Table& call() const { return table_; }
  int version() const { return version_; }
  // "NCCL 2.27.3, /usr/lib/libnccl.so.2"
  std::string describe() const;

  // Throws, unless the result is a success or `in_progress`: PeerLost where NCCL says that it was another rank,
  // Internal where it says that hvd has called it wrongly, else Aborted. `communicator` may be null.
  void check(Result result, const char* what, Handle communicator = nullptr) const;

 private:
  const DynamicLibrary library_;
  Table table_{};
  int version_ = 0;
};

// "2.27.3"
std::string version_text(int version);

}  // namespace hvd::nccl
