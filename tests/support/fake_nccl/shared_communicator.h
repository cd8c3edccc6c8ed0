// The ranks of one fake communicator: where their collectives meet, and what that comes to.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace hvd::testing {

constexpr int kInvalidUsage = 5;  // NCCL's number

enum class FakeKind { allreduce, reduce, reducescatter, broadcast, allgather, send, receive };

struct FakeOperation {
  FakeKind kind;
  const void* input;
  void* output;
  std::size_t count;
  DType dtype;
  int op;                   // NCCL's number; 0 for a scaled sum
  double scale;             // of that
  int peer;                 // root, or the other end
  bool registered = false;  // both input and output: NCCL has all ranks do so, or none

  bool agrees(const FakeOperation& other) const {
    return kind == other.kind && count == other.count && dtype == other.dtype && op == other.op &&
           scale == other.scale && peer == other.peer && registered == other.registered;
  }
};

struct SharedCommunicator;

struct FakeCommunicator {
  std::shared_ptr<SharedCommunicator> shared_communicator;
  int rank = 0;
  int device = 0;
  bool never_ready = false;
  std::atomic<bool> aborted{false};
  std::atomic<int> failure{0};
  std::atomic<int> outstanding{0};  // batches in streams
  // The thread's that calls:
  int busy_looks = 0;  // so many looks until the last call is through
  bool finalized = false;
  std::atomic<std::uint64_t> batches{0};
  std::map<int, double> scaled_sums;  // factors by operation
  int made_scaled_sums = 0;
  std::map<const void*, std::size_t> registered;  // bytes by begin of the memory

  bool has_registered(const void* memory) const {
    const auto after = registered.upper_bound(memory);
    if (after == registered.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return memory < static_cast<const std::byte*>(begin) + bytes;
  }
};

// What a rank has put between group_start and group_end.
struct FakeBatch {
  std::shared_ptr<FakeCommunicator> communicator;
  std::vector<FakeOperation> operations;
  std::uint64_t number = 0;  // of those with collectives
  bool hangs = false;
};

struct SharedCommunicator {
  explicit SharedCommunicator(int ranks) : size(ranks) {}

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;  // guarded by mutex, as all below

  struct Collective {
    std::vector<std::vector<FakeOperation>> by_rank;
    std::vector<std::shared_ptr<FakeCommunicator>> communicators;
    int left = 0;
    bool over = false;
  };
  std::map<std::uint64_t, Collective> in_flight;                           // by batch
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;  // (from, to)

  // In a stream.
  void perform(const FakeBatch& batch);

 private:
  void meet(const FakeBatch& batch, const std::vector<FakeOperation>& collectives, std::unique_lock<std::mutex>& lock);
};

}  // namespace hvd::testing
