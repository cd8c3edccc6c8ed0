// The kernels of bucket.cu as functions of this process: the same source, with these words for those of CUDA.
#include "tests/support/fake_cuda/kernels.h"

#include "ops/gpu/bucket_table.h"

#define HVD_KERNEL extern "C" __attribute__((visibility("default")))
#define HVD_DEVICE

namespace hvd::cuda {

namespace {
thread_local GridStride stride_of_this_thread;
GridStride grid_stride() { return stride_of_this_thread; }
}  // namespace

}  // namespace hvd::cuda

#include "ops/gpu/bucket.cu"

namespace hvd::testing {

using cuda::BucketPiece;
using cuda::BucketTable;

std::vector<FakeLaunch::Access> FakeLaunch::accesses() const {
  const auto is_of = [this](const char* type) { return name_.find(type) != std::string::npos; };
  const std::int64_t unit = is_of("bytes") ? 1 : is_of("64") ? 8 : is_of("32") ? 4 : is_of("16") ? 2 : 1;
  const std::int64_t packed_unit = is_of("_int16") ? 4 : unit;
  std::vector<Access> all;
  for (int i = 0; i < pieces_; ++i) {
    const BucketPiece& piece = table_->pieces[i];
    all.push_back({piece.memory, static_cast<std::size_t>(piece.elements * unit)});
    all.push_back({static_cast<const std::byte*>(table_->packed) + piece.offset * packed_unit,
                   static_cast<std::size_t>(piece.elements * packed_unit)});
  }
  return all;
}

void FakeLaunch::run() const {
  for (int piece = 0; piece < pieces_; ++piece) {
    for (std::int64_t thread = 0; thread < threads_; ++thread) {
      cuda::stride_of_this_thread = {piece, thread, threads_};
      kernel_(*table_);
    }
  }
}

}  // namespace hvd::testing
