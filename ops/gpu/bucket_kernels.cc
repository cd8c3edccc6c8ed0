#include "ops/gpu/bucket_kernels.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.h"

namespace hvd::cuda {

// Defined in bucket_image.cc.
extern const char kBucketKernelImage[] __asm__("hvd_bucket_kernel_image") __attribute__((visibility("hidden")));

namespace {

// Enough blocks per tensor to fill a GPU, few enough to limit the overhead of small tensors.
constexpr std::int64_t kThreads = 256, kElementsPerThread = 16, kMaxBlocks = 256;

bool has_factors(DType dtype) { return dtype != DType::boolean && !only_moves(dtype); }

bool moves_bytes(DType dtype, double factor) { return factor == 1.0 && packed_size_of(dtype) == size_of(dtype); }

// Returns the exact divisor of integers if the factor only approximates its reciprocal.
double divisor_of(double factor) {
  const double divisor = std::nearbyint(1.0 / factor);
  return std::fabs(factor) < 1.0 && 1.0 / divisor == factor ? divisor : 0.0;
}

}  // namespace

std::size_t packed_size_of(DType dtype) { return dtype == DType::int16 ? 4 : size_of(dtype); }

BucketKernels::BucketKernels(std::shared_ptr<const Driver> driver) : driver_(std::move(driver)) {
  if (*kBucketKernelImage == '\0') {
    throw Unsupported("this build of hvd has no GPU kernels: build it where nvcc or clang is installed");
  }
  driver_->check(driver_->call().modules.load(&module_, kBucketKernelImage), "cuModuleLoadData");
  try {
    find("pack", functions_[static_cast<std::size_t>(Pass::pack)]);
    find("unpack", functions_[static_cast<std::size_t>(Pass::unpack)]);
  } catch (...) {
    driver_->call().modules.unload(module_);
    throw;
  }
}

void BucketKernels::find(const std::string& pass, Functions& functions) {
  const auto named = [&](const std::string& type) {
    Function function = nullptr;
    const std::string name = "hvd_" + pass + "_" + type;
    driver_->check(driver_->call().modules.function(&function, module_, name.c_str()), "cuModuleGetFunction");
    return function;
  };
  functions.bytes = named("bytes");
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (has_factors(dtype)) functions.scaled[static_cast<std::size_t>(i)] = named(dtype_name(dtype));
  }
}

BucketKernels::~BucketKernels() { driver_->call().modules.unload(module_); }

void BucketKernels::launch(Pass pass, DType dtype, std::span<const BucketPiece> pieces, void* packed, double factor,
                           Stream stream) const {
  const bool bytes = moves_bytes(dtype, factor);
  const Functions& functions = functions_[static_cast<std::size_t>(pass)];
  const Function function = bytes ? functions.bytes : functions.scaled[static_cast<std::size_t>(dtype)];
  if (function == nullptr) throw Internal(std::string("a factor of packed ") + dtype_name(dtype) + " tensors");
  const std::int64_t unit = bytes ? static_cast<std::int64_t>(size_of(dtype)) : 1;
  BucketTable table{.packed = packed, .factor = factor, .divisor = divisor_of(factor), .pieces = {}};
  while (!pieces.empty()) {
    const auto now = pieces.first(std::min<std::size_t>(pieces.size(), BucketTable::kPieces));
    pieces = pieces.subspan(now.size());
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      table.pieces[i] = {now[i].memory, now[i].elements * unit, now[i].offset * unit};
      longest = std::max(longest, now[i].elements);
    }
    const std::int64_t blocks = std::clamp<std::int64_t>(longest / (kThreads * kElementsPerThread), 1, kMaxBlocks);
    void* parameters[] = {&table};
    driver_->check(
        driver_->call().modules.launch(function, static_cast<unsigned>(blocks), static_cast<unsigned>(now.size()), 1,
                                       kThreads, 1, 1, 0, stream, parameters, nullptr),
        "cuLaunchKernel");
  }
}

}  // namespace hvd::cuda
