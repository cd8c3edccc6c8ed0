// The promise of allreduce.h: ring, direct exchange, Bruck and one-shot have the same bits, those of the
// canonical order, for every type, operation, number of ranks and bucket; halving-doubling has the right sums.
#include "ops/algorithms/allreduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

#include "core/base/error.h"
#include "ops/algorithms/transport_backend.h"
#include "tests/ops/algorithms/element_values.h"
#include "tests/support/catch.h"
#include "tests/support/random_bits.h"
#include "tests/support/sanitized.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr AllreduceAlgorithm kCanonical[] = {AllreduceAlgorithm::ring, AllreduceAlgorithm::direct,
                                             AllreduceAlgorithm::bruck, AllreduceAlgorithm::one_shot};

struct Bucket {
  Reduction reduction;
  std::vector<std::int64_t> sizes;
  int joined = -1;  // this rank has no tensors
};

bool is_float(DType dtype) { return dtype == DType::float64 || accumulator_of(dtype) == DType::float32; }

// Any bits for integers; for floats numbers of all magnitudes, so that the order shows in the last bits, and zeros of
// both signs.
Buffer rough_tensor(const Bucket& bucket, int rank, std::size_t piece) {
  static constexpr double kPowers[] = {0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1, 2, 4, 8, 16, 32};
  const DType dtype = bucket.reduction.dtype;
  const auto elements = static_cast<std::size_t>(bucket.sizes[piece]);
  const std::uint64_t first = static_cast<std::uint64_t>(rank) << 48 ^ static_cast<std::uint64_t>(piece) << 40;
  if (!is_float(dtype) && dtype != DType::boolean) {
    Buffer bytes(elements * size_of(dtype));
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      const std::uint64_t bits = random_bits(first + at);
      std::memcpy(bytes.data() + at, &bits, std::min(sizeof bits, bytes.size() - at));
    }
    return bytes;
  }
  std::vector<double> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint64_t bits = random_bits(first + i);
    const double mantissa = bits % 8 == 0 ? 0.0 : 0.5 + static_cast<double>(bits >> 40) * 0x1p-24;
    const double power = bucket.reduction.op == ReduceOp::product ? 1 : kPowers[(bits >> 8) % std::size(kPowers)];
    values[i] = (bits >> 4 & 1) == 0 ? mantissa * power : -mantissa * power;
    if (dtype == DType::boolean) values[i] = static_cast<double>(bits >> 5 & 1);
  }
  return encode(values, dtype);
}

// The bucket's results, from the definition: slice h of each piece folded at h+1, h+2, ..., h.
std::vector<Buffer> canonical(const Bucket& bucket, int ranks) {
  const std::size_t size = size_of(bucket.reduction.dtype);
  std::vector<Buffer> results;
  for (std::size_t p = 0; p < bucket.sizes.size(); ++p) {
    std::vector<Buffer> given;
    for (int rank = 0; rank < ranks; ++rank) {
      given.push_back(rough_tensor(bucket, rank, p));
      if (rank != bucket.joined) continue;
      fill_identity(bucket.reduction.dtype, bucket.reduction.op, given.back().data(), given.back().size() / size);
      if (is_float(bucket.reduction.dtype) &&
          std::signbit(bucket.reduction.prescale)) {  // such that the scaled identity is one
        for (std::size_t at = size - 1; at < given.back().size(); at += size) given.back()[at] ^= std::byte{0x80};
      }
    }
    results.emplace_back(given.front().size());
    std::int64_t begin = 0;
    for (int slice = 0; slice < ranks; ++slice) {
      const std::int64_t count = bucket.sizes[p] / ranks + (slice < bucket.sizes[p] % ranks ? 1 : 0);
      const std::size_t offset = static_cast<std::size_t>(begin) * size;
      std::vector<const void*> inputs;
      for (int i = 1; i <= ranks; ++i)
        inputs.push_back(given[static_cast<std::size_t>((slice + i) % ranks)].data() + offset);
      reduce(bucket.reduction, bucket.reduction.dtype, inputs, bucket.reduction.dtype, results.back().data() + offset,
             static_cast<std::size_t>(count));
      begin += count;
    }
  }
  return results;
}

class Rank {
 public:
  Rank(std::unique_ptr<Transport> transport, int ranks) : rank_(transport->rank()) {
    for (int rank = 0; rank < ranks; ++rank) set_.ranks.push_back(rank);
    backend_ =
        make_transport_backend("test", std::move(transport), 20s, [this](const AllreduceSize&) { return algorithm_; });
  }

  // The bucket's results; what it was, if this rank has joined.
  std::vector<Buffer> allreduce(AllreduceAlgorithm algorithm, const Bucket& bucket, bool in_place) {
    algorithm_ = algorithm;
    std::vector<Buffer> inputs, outputs;
    for (std::size_t p = 0; p < bucket.sizes.size(); ++p) inputs.push_back(rough_tensor(bucket, rank_, p));
    for (const Buffer& input : inputs) outputs.emplace_back(input.size());
    CollectiveCall call{.dtype = bucket.reduction.dtype,
                        .op = bucket.reduction.op,
                        .prescale = bucket.reduction.prescale,
                        .postscale = bucket.reduction.postscale,
                        .set = &set_,
                        .sequence = sequence_++,
                        .pieces = {},
                        .counts = {}};
    for (std::size_t p = 0; p < bucket.sizes.size(); ++p) {
      const bool joined = rank_ == bucket.joined;
      Buffer& target = in_place ? inputs[p] : outputs[p];
      call.pieces.push_back({.input = joined ? nullptr : inputs[p].data(),
                             .output = joined ? nullptr : target.data(),
                             .elements = bucket.sizes[p]});
    }
    backend_->run(call);
    return in_place ? inputs : outputs;
  }

  int rank() const { return rank_; }

 private:
  const int rank_;
  ProcessSet set_;
  AllreduceAlgorithm algorithm_ = AllreduceAlgorithm::ring;
  std::unique_ptr<Backend> backend_;
  std::uint64_t sequence_ = 0;
};

std::string name_of(AllreduceAlgorithm algorithm, const Bucket& bucket) {
  return std::string(algorithm_name(algorithm)) + " of " + dtype_name(bucket.reduction.dtype) + " with " +
         reduce_op_name(bucket.reduction.op) + ", " + std::to_string(bucket.sizes.size()) + " tensors, prescale " +
         std::to_string(bucket.reduction.prescale);
}

void check_canonical(TransportKind kind, int ranks, const std::vector<Bucket>& buckets) {
  std::vector<std::vector<Buffer>> expected;
  for (const Bucket& bucket : buckets) expected.push_back(canonical(bucket, ranks));
  run_all_well({.kind = kind, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
    Rank self(std::move(transport), ranks);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      for (const AllreduceAlgorithm algorithm : kCanonical) {
        const auto results = self.allreduce(algorithm, buckets[b], b % 2 == 0);
        if (self.rank() == buckets[b].joined || results == expected[b]) continue;
        throw Internal(name_of(algorithm, buckets[b]) + ": other bits");
      }
    }
  });
}

std::vector<Bucket> small_buckets(int ranks) {
  std::vector<Bucket> buckets;
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : kReductions) {
      if (!reduction_exists(dtype, op)) continue;
      buckets.push_back({.reduction = {.dtype = dtype, .op = op}, .sizes = {1001}});
      buckets.push_back({.reduction = {.dtype = dtype, .op = op}, .sizes = {3, 0, 1, 517, 1, 64}});
      if (ranks > 1) buckets.push_back({.reduction = {.dtype = dtype, .op = op}, .sizes = {7, 130}, .joined = 1});
    }
    if (dtype == DType::boolean) continue;
    for (const double prescale : {0.3, -1.5}) {
      const Reduction scaled{.dtype = dtype, .prescale = prescale, .postscale = 1.0 / ranks};
      buckets.push_back({.reduction = scaled, .sizes = {333}});
      buckets.push_back({.reduction = scaled, .sizes = {5, 77}});
      if (ranks > 1) buckets.push_back({.reduction = scaled, .sizes = {100, 9}, .joined = ranks - 1});
    }
  }
  return buckets;
}

}  // namespace

TEST_CASE("ring, direct exchange, Bruck and one-shot have the same bits") {
  for (int ranks = 1; ranks <= (kSanitized ? 5 : 9); ++ranks) {
    CAPTURE(ranks);
    check_canonical(TransportKind::local, ranks, small_buckets(ranks));
  }
}

TEST_CASE("they have the same bits over TCP, and beyond a segment") {
  const auto kind = GENERATE(TransportKind::local, TransportKind::tcp, TransportKind::striped_tcp);
  for (const int ranks : {2, 3, 6}) {
    if (kSanitized && ranks == 6) break;
    CAPTURE(transport_name(kind), ranks);
    std::vector<Bucket> buckets;
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float64}) {
      if (kSanitized && dtype == DType::float64) break;
      buckets.push_back({.reduction = {.dtype = dtype}, .sizes = {120'003}});
      buckets.push_back({.reduction = {.dtype = dtype}, .sizes = {11, 90'001, 0, 3, 20'000, 1}});
      buckets.push_back({.reduction = {.dtype = dtype, .prescale = 0.3}, .sizes = {30'000, 5}, .joined = 0});
      buckets.push_back({.reduction = {.dtype = dtype}, .sizes = {1}});
      buckets.push_back({.reduction = {.dtype = dtype}, .sizes = {0, 0}});
    }
    check_canonical(kind, ranks, buckets);
  }
}

TEST_CASE("halving-doubling has the right sums, the same on all ranks") {
  for (int ranks = 1; ranks <= (kSanitized ? 6 : 9); ++ranks) {
    for (const DType dtype : {DType::int32, DType::uint8, DType::float32, DType::float16, DType::float64}) {
      for (const Bucket& bucket : {Bucket{.reduction = {.dtype = dtype}, .sizes = {40'001}},
                                   Bucket{.reduction = {.dtype = dtype}, .sizes = {3, 0, 1, 517}},
                                   Bucket{.reduction = {.dtype = dtype, .prescale = 2, .postscale = 0.5}, .sizes = {9}},
                                   Bucket{.reduction = {.dtype = dtype}, .sizes = {0}}}) {
        CAPTURE(ranks, name_of(AllreduceAlgorithm::halving_doubling, bucket));
        const auto expected = canonical(bucket, ranks);
        std::vector<std::vector<Buffer>> results(static_cast<std::size_t>(ranks));
        run_all_well({.kind = TransportKind::local, .size = ranks}, [&](std::unique_ptr<Transport> transport) {
          Rank self(std::move(transport), ranks);
          results[static_cast<std::size_t>(self.rank())] =
              self.allreduce(AllreduceAlgorithm::halving_doubling, bucket, ranks % 2 == 0);
        });
        for (const auto& tensors : results) CHECK(tensors == results.front());
        if (!is_float(dtype)) {
          CHECK(results.front() == expected);
          continue;
        }
        // Values are below 64, so that this is a few roundings.
        const double tolerance = dtype == DType::float16 ? 1.0 : dtype == DType::float32 ? 1e-3 : 1e-12;
        for (std::size_t p = 0; p < expected.size(); ++p) {
          const auto values = decode(results.front()[p], dtype), right = decode(expected[p], dtype);
          double error = 0;
          for (std::size_t i = 0; i < values.size(); ++i) error = std::max(error, std::abs(values[i] - right[i]));
          CHECK(error <= tolerance);
        }
      }
    }
  }
}
