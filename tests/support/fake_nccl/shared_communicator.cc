#include "tests/support/fake_nccl/shared_communicator.h"

#include <algorithm>
#include <cstring>

#include "tests/conformance/element.h"

extern "C" int fake_cuda_touch(int device, const void* memory, std::size_t bytes);

namespace hvd::testing {

namespace {

constexpr int kProduct = 1, kMax = 2, kMin = 3, kAverage = 4;

double rounded(DType dtype, double value) {
  std::byte cell[8];
  put_element(dtype, cell, 0, value);
  return get_element(dtype, cell, 0);
}

double combine(int op, double a, double b) {
  switch (op) {
    case kProduct: return a * b;
    case kMax: return std::max(a, b);
    case kMin: return std::min(a, b);
    default: return a + b;
  }
}

// As NCCL's arithmetic: a scale is rounded to the type and multiplied with each input; an average of integers is
// divided at the end, of others it is a scale.
double reduce_element(const FakeOperation& operation, const std::vector<const std::byte*>& inputs, std::int64_t i) {
  const DType dtype = operation.dtype;
  const double ranks = static_cast<double>(inputs.size());
  double scale = operation.scale;
  if (operation.op == kAverage && is_floating(dtype)) scale = 1 / ranks;
  scale = rounded(dtype, scale);
  double result = 0;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    const double own = rounded(dtype, get_element(dtype, inputs[rank], i) * scale);
    result = rank == 0 ? own : combine(operation.op, result, own);
    if (!is_floating(dtype)) result = rounded(dtype, result);
  }
  return operation.op == kAverage && !is_floating(dtype) ? result / ranks : result;
}

std::size_t input_bytes(const FakeOperation& operation, int size) {
  return operation.count * size_of(operation.dtype) * (operation.kind == FakeKind::reducescatter ? size : 1u);
}

std::size_t output_bytes(const FakeOperation& operation, int size) {
  return operation.count * size_of(operation.dtype) * (operation.kind == FakeKind::allgather ? size : 1u);
}

bool gives(const FakeOperation& operation, int rank) {
  return operation.kind != FakeKind::broadcast || operation.peer == rank;
}

bool takes(const FakeOperation& operation, int rank) {
  return operation.kind != FakeKind::reduce || operation.peer == rank;
}

// One collective of all ranks, from copies of their inputs: outputs may be the same memory.
void perform(const std::vector<FakeOperation>& by_rank) {
  const auto size = by_rank.size();
  const FakeOperation& first = by_rank.front();
  std::vector<std::vector<std::byte>> copies(size);
  std::vector<const std::byte*> inputs(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (!gives(by_rank[rank], static_cast<int>(rank))) continue;
    const auto* const begin = static_cast<const std::byte*>(by_rank[rank].input);
    copies[rank].assign(begin, begin + input_bytes(first, static_cast<int>(size)));
    inputs[rank] = copies[rank].data();
  }
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (!takes(by_rank[rank], static_cast<int>(rank))) continue;
    auto* const output = static_cast<std::byte*>(by_rank[rank].output);
    const std::size_t bytes = first.count * size_of(first.dtype);
    if (first.kind == FakeKind::broadcast) {
      std::memcpy(output, inputs[static_cast<std::size_t>(first.peer)], bytes);
    } else if (first.kind == FakeKind::allgather) {
      for (std::size_t from = 0; from < size; ++from) std::memcpy(output + from * bytes, inputs[from], bytes);
    } else {
      const std::size_t begin = first.kind == FakeKind::reducescatter ? rank * first.count : 0;
      for (std::size_t i = 0; i < first.count; ++i) {
        put_element(first.dtype, output, static_cast<std::int64_t>(i),
                    reduce_element(first, inputs, static_cast<std::int64_t>(begin + i)));
      }
    }
  }
}

bool touch_all(const FakeCommunicator& communicator, const std::vector<FakeOperation>& operations) {
  bool there = true;
  for (const FakeOperation& operation : operations) {
    const int size = communicator.shared_communicator->size;
    if (operation.kind != FakeKind::receive && gives(operation, communicator.rank)) {
      there = fake_cuda_touch(communicator.device, operation.input, input_bytes(operation, size)) != 0 && there;
    }
    if (operation.kind != FakeKind::send && takes(operation, communicator.rank)) {
      there = fake_cuda_touch(communicator.device, operation.output, output_bytes(operation, size)) != 0 && there;
    }
  }
  return there;
}

}  // namespace

void SharedCommunicator::perform(const FakeBatch& batch) {
  FakeCommunicator& own = *batch.communicator;
  std::unique_lock lock(mutex);
  if (batch.hangs) return changed.wait(lock, [&] { return own.aborted.load(); });
  if (own.aborted || !touch_all(own, batch.operations)) return;
  std::vector<FakeOperation> collectives;
  for (const FakeOperation& operation : batch.operations) {
    if (operation.kind == FakeKind::send) {
      const auto* const begin = static_cast<const std::byte*>(operation.input);
      mail[{own.rank, operation.peer}].emplace_back(begin, begin + operation.count * size_of(operation.dtype));
    } else if (operation.kind != FakeKind::receive) {
      collectives.push_back(operation);
    }
  }
  changed.notify_all();
  if (!collectives.empty()) meet(batch, collectives, lock);
  for (const FakeOperation& operation : batch.operations) {
    if (operation.kind != FakeKind::receive) continue;
    auto& box = mail[{operation.peer, own.rank}];
    changed.wait(lock, [&] { return own.aborted || !box.empty(); });
    if (own.aborted) return;
    if (box.front().size() != operation.count * size_of(operation.dtype)) {
      own.failure = kInvalidUsage;
      return;
    }
    std::memcpy(operation.output, box.front().data(), box.front().size());
    box.pop_front();
  }
}

void SharedCommunicator::meet(const FakeBatch& batch, const std::vector<FakeOperation>& collectives,
                              std::unique_lock<std::mutex>& lock) {
  FakeCommunicator& own = *batch.communicator;
  const auto ranks = static_cast<std::size_t>(size);
  Collective& collective = in_flight[batch.number];
  collective.by_rank.resize(ranks);
  collective.by_rank[static_cast<std::size_t>(own.rank)] = collectives;
  collective.communicators.push_back(batch.communicator);
  if (collective.communicators.size() == ranks) {
    bool agree = true;
    for (const auto& other : collective.by_rank) {
      agree = agree && std::equal(other.begin(), other.end(), collectives.begin(), collectives.end(),
                                  [](const auto& a, const auto& b) { return a.agrees(b); });
    }
    for (std::size_t i = 0; agree && i < collectives.size(); ++i) {
      std::vector<FakeOperation> one;
      for (const auto& other : collective.by_rank) one.push_back(other[i]);
      testing::perform(one);
    }
    for (const auto& communicator : collective.communicators) {
      if (!agree) communicator->failure = kInvalidUsage;
    }
    collective.over = true;
    changed.notify_all();
  }
  // An aborted rank's memory is no longer to be touched: its place stays empty, and the others wait until they give up.
  changed.wait(lock, [&] { return own.aborted || collective.over; });
  if (!collective.over) collective.by_rank[static_cast<std::size_t>(own.rank)].clear();
  if (++collective.left == size) in_flight.erase(batch.number);
}

}  // namespace hvd::testing
