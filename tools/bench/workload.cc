#include "tools/bench/workload.h"

#include <hvd.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "tools/bench/reference.h"

namespace hvd::bench {

namespace {

constexpr int kRoot = 0;

// Memory of a tensor, of the kind that the user requested.
template <typename T>
class Buffer {
 public:
  Buffer(std::int64_t elements, bool arena) {
    const auto size = static_cast<std::size_t>(elements);
    if (arena) {
      memory_ = std::vector<T, allocator<T>>(size);
    } else {
      memory_ = std::vector<T>(size);
    }
  }
  std::span<T> values() {
    return std::visit([](auto& memory) { return std::span<T>(memory); }, memory_);
  }

 private:
  std::variant<std::vector<T>, std::vector<T, allocator<T>>> memory_;
};

// All tensors are consecutive parts of one long sequence of elements, whose values the patterns define.
template <typename T>
struct Tensor {
  Buffer<T> input;
  Buffer<T> separate_output;  // empty: the result is in the input or is returned
  std::int64_t first;         // its index in the sequence
  hvd::Options call;          // with a fixed name, like a gradient

  std::span<T> output() { return separate_output.values().empty() ? input.values() : separate_output.values(); }
};

class Barrier : public Workload {
 public:
  int max_calls() const override { return kMaxCalls; }
  void rewrite(int) override {}
  void run() override { barrier(call_); }
  std::int64_t count_errors(int, int) override { return 0; }

 private:
  const hvd::Options call_{.name = "bench"};
};

template <typename T>
class TensorWorkload : public Workload {
 public:
  TensorWorkload(const Settings& settings, const TensorSet& row)
      : settings_(settings), ranks_(size()), rank_(hvd::rank()) {
    const bool has_output = settings.collective == Collective::allreduce && !settings.in_place;
    std::int64_t first = 0;
    for (const std::int64_t elements : row) {
      const std::int64_t input = settings.collective == Collective::allgather ? elements / ranks_ : elements;
      tensors_.push_back({.input = {input, settings.arena},
                          .separate_output = {has_output ? elements : 0, settings.arena},
                          .first = first,
                          .call = {.name = "bench." + std::to_string(tensors_.size())}});
      if (settings.grouped) group_.push_back(tensors_.back().input.values());
      first += input;
    }
  }

  int max_calls() const override { return bench::max_calls<T>(settings_.op, ranks_, settings_.in_place); }

  void rewrite(int round) override {
    const Reference<T> reference(settings_.op, ranks_, round);
    const bool gives = settings_.collective != Collective::broadcast || rank_ == kRoot;
    const Pattern<T> stale = Reference<T>::stale();
    const Pattern<T> inputs = gives ? reference.contribution(rank_) : stale;
    for (Tensor<T>& tensor : tensors_) {
      inputs.write(tensor.input.values(), tensor.first);
      stale.write(tensor.separate_output.values(), tensor.first);
    }
  }

  void run() override {
    if (tensors_.size() == 1 && !settings_.grouped) {
      returned_ = perform(tensors_.front());
      return;
    }
    pending_.clear();
    if (settings_.grouped) {
      pending_.push_back(grouped_allreduce_async(group_, *settings_.op, tensors_.front().call));
    } else {
      for (Tensor<T>& tensor : tensors_) pending_.push_back(submit(tensor));
    }
    for (const Pending& operation : pending_) std::visit([](const auto& future) { future.wait(); }, operation);
  }

  std::int64_t count_errors(int round, int calls) override {
    const std::vector<Pattern<T>> parts = expected(round, settings_.in_place ? calls : 1);
    if (pending_.empty()) {
      Tensor<T>& tensor = tensors_.front();
      return errors_in(returned_ ? std::span<const T>(*returned_) : tensor.output(), tensor, parts);
    }
    std::int64_t errors = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto count = [&](auto& future) { return errors_in(result(tensors_[i], future), tensors_[i], parts); };
      errors += std::visit(count, pending_[settings_.grouped ? 0 : i]);
    }
    return errors;
  }

 private:
  using Pending = std::variant<Future<void>, Future<std::vector<T>>, Future<Received<T>>>;

  Pending submit(Tensor<T>& tensor) {
    const std::span<T> input = tensor.input.values();
    switch (settings_.collective) {
      case Collective::allgather: return allgather_async(input, tensor.call);
      case Collective::broadcast: return broadcast_async(input, kRoot, tensor.call);
      case Collective::reducescatter: return reducescatter_async(input, *settings_.op, tensor.call);
      case Collective::alltoall: return alltoall_async(input, {}, tensor.call);
      default: break;
    }
    if (settings_.in_place) return allreduce_async(input, *settings_.op, tensor.call);
    return allreduce_async(input, tensor.separate_output.values(), *settings_.op, tensor.call);
  }

  // Returns the result unless it is written to an output.
  std::optional<std::vector<T>> perform(Tensor<T>& tensor) {
    const std::span<T> input = tensor.input.values();
    switch (settings_.collective) {
      case Collective::allgather: return allgather(input, tensor.call);
      case Collective::reducescatter: return reducescatter(input, *settings_.op, tensor.call);
      case Collective::alltoall: return alltoall(input, {}, tensor.call).values;
      case Collective::broadcast: broadcast(input, kRoot, tensor.call); return std::nullopt;
      default: break;
    }
    if (settings_.in_place) {
      allreduce(input, *settings_.op, tensor.call);
    } else {
      allreduce(input, tensor.separate_output.values(), *settings_.op, tensor.call);
    }
    return std::nullopt;
  }

  static std::span<const T> result(Tensor<T>& tensor, Future<void>&) { return tensor.output(); }
  static std::vector<T> result(Tensor<T>&, Future<std::vector<T>>& future) { return future.get(); }
  static std::vector<T> result(Tensor<T>&, Future<Received<T>>& future) { return future.get().values; }

  // The expected values of the equal parts of a result, of which there may be one.
  std::vector<Pattern<T>> expected(int round, int calls) const {
    const Reference<T> reference(settings_.op, ranks_, round);
    if (settings_.op) return {reference.reduced(calls)};
    if (settings_.collective == Collective::broadcast) return {reference.contribution(kRoot)};
    std::vector<Pattern<T>> parts;
    for (int rank = 0; rank < ranks_; ++rank) parts.push_back(reference.contribution(rank));
    return parts;
  }

  std::int64_t errors_in(std::span<const T> result, Tensor<T>& tensor, const std::vector<Pattern<T>>& parts) const {
    const std::int64_t elements = result_elements(tensor);
    if (static_cast<std::int64_t>(result.size()) != elements) return elements;
    const std::size_t length = result.size() / parts.size();
    // reducescatter and alltoall give each rank a different part of the inputs.
    const bool scatters =
        settings_.collective == Collective::reducescatter || settings_.collective == Collective::alltoall;
    const std::int64_t first = tensor.first + (scatters ? rank_ * static_cast<std::int64_t>(length) : 0);
    std::int64_t errors = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      errors += parts[part].count_errors(result.subspan(part * length, length), first);
    }
    return errors;
  }

  std::int64_t result_elements(Tensor<T>& tensor) const {
    const auto input = static_cast<std::int64_t>(tensor.input.values().size());
    if (settings_.collective == Collective::allgather) return input * ranks_;
    return settings_.collective == Collective::reducescatter ? input / ranks_ : input;
  }

  const Settings& settings_;
  const int ranks_;
  const int rank_;
  std::vector<Tensor<T>> tensors_;
  std::vector<std::span<T>> group_;  // all inputs, if they are one grouped operation
  // Of the last run: futures of several tensors, or the result of one, returned by a synchronous call.
  std::vector<Pending> pending_;
  std::optional<std::vector<T>> returned_;
};

}  // namespace

std::unique_ptr<Workload> make_workload(const Settings& settings, const TensorSet& row) {
  if (settings.collective == Collective::barrier) return std::make_unique<Barrier>();
  return with_type(settings.dtype, [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<Workload> {
    return std::make_unique<TensorWorkload<T>>(settings, row);
  });
}

}  // namespace hvd::bench
