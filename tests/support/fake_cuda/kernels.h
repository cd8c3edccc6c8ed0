// A launch of one of hvd's kernels on the fake driver. What it reads and writes can be asked before: a kernel in memory
// that is not there fails the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/gpu/bucket_table.h"

namespace hvd::testing {

using FakeKernel = void (*)(cuda::BucketTable);

class FakeLaunch {
 public:
  struct Access {
    const void* memory;
    std::size_t bytes;
  };

  // As if over a grid of `pieces` rows with so many threads each.
  FakeLaunch(FakeKernel kernel, std::string name, const cuda::BucketTable& table, int pieces, std::int64_t threads)
      : kernel_(kernel),
        name_(std::move(name)),
        table_(std::make_shared<const cuda::BucketTable>(table)),
        pieces_(pieces),
        threads_(threads) {}

  std::vector<Access> accesses() const;
  void run() const;

 private:
  FakeKernel kernel_;
  std::string name_;
  std::shared_ptr<const cuda::BucketTable> table_;
  int pieces_;
  std::int64_t threads_;
};

}  // namespace hvd::testing
