// hvd.hpp: the C++20 interface of hvd, header-only, built on the C interface (hvd.h):
//
//   hvd::Session session;                        // joins the job; leaves it at the end of the scope
//   std::vector<float> gradient = ...;
//   hvd::allreduce(gradient, hvd::average);      // in place, on all ranks
//
// An operation takes any contiguous range of an element type: std::vector, std::array, std::span, a C array. Each has
// two forms: the plain one returns when the result is available; the one with _async returns a Future at once. All
// ranks of the process set must call the same operations with matching arguments. What is done again and again on the
// same memory can be prepared (hvd::prepare_allreduce) and then started. Every function may be called from any
// thread. Tensors in a std::vector<T, hvd::allocator<T>> are reduced fastest between ranks of one host.
//
// Ownership: an operation works on the caller's memory, which must stay valid and untouched until it ends: for an
// _async call, until its Future is done. The destructor of a Future waits, so that an operation never outlives its
// Future. Failures are exceptions derived from hvd::Error; docs/errors.md lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hvd.h"
#include "hvd/allocator.hpp"
#include "hvd/element.hpp"
#include "hvd/error.hpp"
#include "hvd/future.hpp"
#include "hvd/prepared.hpp"
#include "hvd/tensor.hpp"

namespace hvd {
inline namespace v1 {

// ---- Joining and leaving the job

// Joins the job that the environment describes; returns when all of its processes have. Does nothing if initialised.
inline void init() {
  if (hvd_abi_version() != HVD_ABI_VERSION) {
    throw Unsupported("this program was compiled for version " + std::to_string(HVD_ABI_VERSION) +
                      " of the interface, libhvd.so has version " + std::to_string(hvd_abi_version()));
  }
  detail::check(hvd_init());
}

inline void shutdown() { detail::check(hvd_shutdown()); }
// Aborts the job because this rank failed. `cause` follows the rank's name in the message: "raised std::bad_alloc". hvd
// calls this function for an uncaught exception.
inline void fail(const std::string& cause) { detail::check(hvd_fail(cause.c_str())); }
inline bool is_initialized() { return hvd_is_initialized() != 0; }

// Joins the job in its constructor and leaves it in its destructor.
class Session {
 public:
  Session() { init(); }
  ~Session() { hvd_shutdown(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

inline hvd_topology topology() {
  hvd_topology topology = HVD_TOPOLOGY_INIT;
  detail::check(hvd_get_topology(&topology));
  return topology;
}

inline int rank() { return topology().rank; }
inline int size() { return topology().size; }
inline int local_rank() { return topology().local_rank; }
inline int local_size() { return topology().local_size; }
inline int cross_rank() { return topology().cross_rank; }
inline int cross_size() { return topology().cross_size; }

// Returns which algorithm performs an allreduce of which size in this job, and why, as readable lines.
inline std::string algorithm_table() {
  const char* text = nullptr;
  detail::check(hvd_get_algorithm_table(&text));
  return text;
}

// Returns the metrics of this rank since init(), by name; docs/metrics.md lists them.
inline std::map<std::string, double> metrics() {
  const hvd_metric* first = nullptr;
  std::size_t count = 0;
  detail::check(hvd_get_metrics(&first, &count));
  std::map<std::string, double> metrics;
  for (std::size_t i = 0; i < count; ++i) metrics.emplace(first[i].name, first[i].value);
  return metrics;
}

// On rank 0, starts recording its operations in a file for chrome://tracing (hvd_start_timeline).
inline void start_timeline(const std::string& path, bool mark_cycles = false) {
  detail::check(hvd_start_timeline(path.c_str(), mark_cycles ? 1 : 0));
}
inline void stop_timeline() { detail::check(hvd_stop_timeline()); }

// ---- Arguments and results of operations

enum class ReduceOp : std::int32_t {
  average = HVD_AVERAGE,
  sum = HVD_SUM,
  adasum = HVD_ADASUM,  // adaptive sum: allreduce of floating-point elements only
  min = HVD_MIN,
  max = HVD_MAX,
  product = HVD_PRODUCT,
};
using enum ReduceOp;

struct Options {
  std::string name{};  // the same on all ranks; empty: the next number of the process set
  int process_set = HVD_GLOBAL_PROCESS_SET;
  double prescale = 1.0;   // reductions: factor applied to the inputs before,
  double postscale = 1.0;  // and to the result afterwards
  int priority = 0;        // operations that are ready on all ranks are performed by descending priority
};

// Identifies a message between two ranks. Messages with the same tag are received in the order in which they were sent;
// a message is never received on another channel.
struct MessageOptions {
  std::int64_t tag = 0;
  std::uint64_t channel = 0;
};

// The result of alltoall: the values from rank 0, then those from rank 1, and so on, and the number from each rank.
template <typename T>
struct Received {
  std::vector<T> values;
  std::vector<std::int64_t> counts;
};

namespace detail {

inline hvd_call make_call(hvd_collective collective, const Options& options) {
  hvd_call call = HVD_CALL_INIT;
  call.collective = collective;
  call.process_set = options.process_set;
  call.name = options.name.empty() ? nullptr : options.name.c_str();
  call.prescale = options.prescale;
  call.priority = options.priority;
  call.postscale = options.postscale;
  return call;
}

// The ways to use a call: Begin starts it and returns its Future; Perform waits for it and returns its result,
// performing it on the calling thread if no other operation is pending; Prepare returns a Prepared.
struct Begin {
  template <typename Result>
  static Future<Result> start(const hvd_call& call, typename Future<Result>::Collect collect) {
    hvd_work* work = nullptr;
    check(hvd_submit(&call, &work));
    return Future<Result>(work, collect);
  }
  static Future<void> start(const hvd_call& call) {
    return start<void>(call, [](hvd_work*) {});
  }
};

struct Perform {
  template <typename Result>
  static Result start(const hvd_call& call, typename Future<Result>::Collect collect) {
    hvd_work* work = nullptr;
    const hvd_status status = hvd_run(&call, -1, &work);
    if (work == nullptr) check(status);
    return Future<Result>(work, collect).get();
  }
  static void start(const hvd_call& call) { check(hvd_run(&call, -1, nullptr)); }
};

struct Prepare {
  static Prepared start(const hvd_call& call) {
    hvd_work* work = nullptr;
    check(hvd_prepare(&call, &work));
    return Prepared(work);
  }
};

template <typename R>
hvd_work* start_message(hvd_status (*start)(const hvd_message*, hvd_work**), R& values, int peer,
                        const MessageOptions& options) {
  const hvd_tensor tensor = Tensor(values);
  hvd_message message = HVD_MESSAGE_INIT;
  message.peer = peer;
  message.channel = options.channel;
  message.tag = options.tag;
  message.data = tensor.data;
  message.bytes = std::ranges::size(values) * sizeof(Value<R>);
  hvd_work* work = nullptr;
  check(start(&message, &work));
  return work;
}

template <typename T>
std::vector<T> collect_vector(hvd_work* work) {
  hvd_tensor output{};
  check(hvd_work_output(work, 0, &output));
  const auto* first = static_cast<const T*>(output.data);
  return first == nullptr ? std::vector<T>() : std::vector<T>(first, first + output.shape[0]);
}

template <typename T>
Received<T> collect_received(hvd_work* work) {
  const std::int64_t* counts = nullptr;
  std::size_t size = 0;
  check(hvd_work_received_splits(work, &counts, &size));
  return {collect_vector<T>(work), std::vector<std::int64_t>(counts, counts + size)};
}

// Starts the call with a separate output. In and Out are deduced by the caller from what it was given.
template <typename How, typename In, typename Out>
auto start_with_output(hvd_call call, const std::remove_cvref_t<In>& input, std::remove_reference_t<Out>& output) {
  static_assert(std::same_as<Value<In>, Value<Out>>, "hvd: input and output differ in type");
  check_writable<Out>();
  check_outlives_call<In>();
  check_outlives_call<Out>();
  const Tensor pinned_input(input), pinned_output(output);
  const hvd_tensor in = pinned_input, out = pinned_output;
  call.count = 1;
  call.inputs = &in;
  call.outputs = &out;
  return How::start(call);
}

}  // namespace detail

// ---- Process sets: subsets of the ranks, for operations among themselves (Options::process_set)

// All ranks of the job, members or not, must call these two functions in the same order; they return when all have. A
// set's number is the same on every rank, and may be reused after the set was removed.
inline int add_process_set(std::span<const int> ranks) {
  static_assert(sizeof(int) == sizeof(std::int32_t));
  std::int32_t number = 0;
  detail::check(hvd_add_process_set(ranks.data(), ranks.size(), &number));
  return number;
}
inline int add_process_set(std::initializer_list<int> ranks) {
  return add_process_set(std::span<const int>(ranks.begin(), ranks.size()));
}
inline void remove_process_set(int process_set) { detail::check(hvd_remove_process_set(process_set)); }

// Returns the ranks of a set, ascending.
inline std::vector<int> ranks_of(int process_set) {
  const std::int32_t* ranks = nullptr;
  std::size_t count = 0;
  detail::check(hvd_get_process_set(process_set, &ranks, &count));
  return {ranks, ranks + count};
}

// ---- The operations

// Reduces over the ranks, in place; afterwards all ranks hold bitwise identical values.
template <typename How = detail::Begin, std::ranges::range R>
auto allreduce_async(R&& values, ReduceOp op = sum, const Options& options = {}) {
  detail::check_writable<R>();
  detail::check_outlives_call<R>();
  const detail::Tensor pinned(values);
  const hvd_tensor tensor = pinned;
  hvd_call call = detail::make_call(HVD_ALLREDUCE, options);
  call.reduce_op = static_cast<std::int32_t>(op);
  call.count = 1;
  call.inputs = call.outputs = &tensor;
  return How::start(call);
}

template <std::ranges::range R>
void allreduce(R&& values, ReduceOp op = sum, const Options& options = {}) {
  allreduce_async<detail::Perform>(values, op, options);
}

// Likewise, with a separate output of the same length.
template <typename How = detail::Begin, std::ranges::range In, std::ranges::range Out>
auto allreduce_async(In&& input, Out&& output, ReduceOp op = sum, const Options& options = {}) {
  hvd_call call = detail::make_call(HVD_ALLREDUCE, options);
  call.reduce_op = static_cast<std::int32_t>(op);
  return detail::start_with_output<How, In, Out>(call, input, output);
}

template <std::ranges::range In, std::ranges::range Out>
void allreduce(const In& input, Out&& output, ReduceOp op = sum, const Options& options = {}) {
  allreduce_async<detail::Perform>(input, output, op, options);
}

// A grouped operation: several ranges at once, in place. `group` is a range of ranges, for example
// std::vector<std::span<float>>; it may be destroyed after the call, the memory of its members may not.
template <typename How = detail::Begin, std::ranges::range Group>
auto grouped_allreduce_async(Group&& group, ReduceOp op = sum, const Options& options = {}) {
  detail::check_members_outlive_call<Group>();
  std::vector<detail::Tensor> pinned;
  for (auto&& values : group) {
    detail::check_writable<decltype(values)>();
    detail::check_outlives_call<decltype(values)>();
    pinned.emplace_back(values);
  }
  const std::vector<hvd_tensor> tensors(pinned.begin(), pinned.end());
  hvd_call call = detail::make_call(HVD_ALLREDUCE, options);
  call.reduce_op = static_cast<std::int32_t>(op);
  call.count = tensors.size();
  call.inputs = call.outputs = tensors.data();
  return How::start(call);
}

template <std::ranges::range Group>
void grouped_allreduce(Group&& group, ReduceOp op = sum, const Options& options = {}) {
  grouped_allreduce_async<detail::Perform>(std::forward<Group>(group), op, options);
}

// Returns the values of all ranks, in rank order; the number of values may differ between ranks.
template <typename How = detail::Begin, std::ranges::range R>
auto allgather_async(R&& values, const Options& options = {}) {
  detail::check_outlives_call<R>();
  const detail::Tensor pinned(values);
  const hvd_tensor tensor = pinned;
  hvd_call call = detail::make_call(HVD_ALLGATHER, options);
  call.count = 1;
  call.inputs = &tensor;
  return How::template start<std::vector<detail::Stored<R>>>(call, detail::collect_vector<detail::Stored<R>>);
}

template <std::ranges::range R>
auto allgather(const R& values, const Options& options = {}) {
  return allgather_async<detail::Perform>(values, options);
}

// Likewise, into an output as long as the values of all ranks together. Throws hvd::Error (HVD_INVALID_ARGUMENT) on a
// rank whose output has another length; that output is left unchanged.
template <typename How = detail::Begin, std::ranges::range In, std::ranges::range Out>
auto allgather_async(In&& values, Out&& output, const Options& options = {}) {
  return detail::start_with_output<How, In, Out>(detail::make_call(HVD_ALLGATHER, options), values, output);
}

template <std::ranges::range In, std::ranges::range Out>
void allgather(const In& values, Out&& output, const Options& options = {}) {
  allgather_async<detail::Perform>(values, output, options);
}

// Copies the values of rank `root` to all ranks, in place.
template <typename How = detail::Begin, std::ranges::range R>
auto broadcast_async(R&& values, int root, const Options& options = {}) {
  detail::check_writable<R>();
  detail::check_outlives_call<R>();
  const detail::Tensor pinned(values);
  const hvd_tensor tensor = pinned;
  hvd_call call = detail::make_call(HVD_BROADCAST, options);
  call.root_rank = root;
  call.count = 1;
  call.inputs = call.outputs = &tensor;
  return How::start(call);
}

template <std::ranges::range R>
void broadcast(R&& values, int root, const Options& options = {}) {
  broadcast_async<detail::Perform>(values, root, options);
}

// Sends counts[r] values to each rank r, in rank order; without counts, equal parts.
template <typename How = detail::Begin, std::ranges::range R>
auto alltoall_async(R&& values, std::span<const std::int64_t> counts = {}, const Options& options = {}) {
  detail::check_outlives_call<R>();
  const detail::Tensor pinned(values);
  const hvd_tensor tensor = pinned;
  hvd_call call = detail::make_call(HVD_ALLTOALL, options);
  call.count = 1;
  call.inputs = &tensor;
  call.splits = counts.empty() ? nullptr : counts.data();
  call.splits_count = counts.size();
  return How::template start<Received<detail::Stored<R>>>(call, detail::collect_received<detail::Stored<R>>);
}

template <std::ranges::range R>
auto alltoall(const R& values, std::span<const std::int64_t> counts = {}, const Options& options = {}) {
  return alltoall_async<detail::Perform>(values, counts, options);
}

// Reduces over the ranks and returns this rank's part; the first ranks receive the remainder, one value each.
template <typename How = detail::Begin, std::ranges::range R>
auto reducescatter_async(R&& values, ReduceOp op = sum, const Options& options = {}) {
  detail::check_outlives_call<R>();
  const detail::Tensor pinned(values);
  const hvd_tensor tensor = pinned;
  hvd_call call = detail::make_call(HVD_REDUCESCATTER, options);
  call.reduce_op = static_cast<std::int32_t>(op);
  call.count = 1;
  call.inputs = &tensor;
  return How::template start<std::vector<detail::Stored<R>>>(call, detail::collect_vector<detail::Stored<R>>);
}

template <std::ranges::range R>
auto reducescatter(const R& values, ReduceOp op = sum, const Options& options = {}) {
  return reducescatter_async<detail::Perform>(values, op, options);
}

// ---- Prepared operations: checked once, and started any number of times on the same memory (hvd/prepared.hpp)

// Without a name, all ranks must prepare in the same order. Nothing is sent. In place, or with a separate output.
template <std::ranges::range R>
Prepared prepare_allreduce(R&& values, ReduceOp op = sum, const Options& options = {}) {
  return allreduce_async<detail::Prepare>(std::forward<R>(values), op, options);
}
template <std::ranges::range In, std::ranges::range Out>
Prepared prepare_allreduce(In&& input, Out&& output, ReduceOp op = sum, const Options& options = {}) {
  return allreduce_async<detail::Prepare>(std::forward<In>(input), std::forward<Out>(output), op, options);
}

// Several ranges at once, fused, in place.
template <std::ranges::range Group>
Prepared prepare_grouped_allreduce(Group&& group, ReduceOp op = sum, const Options& options = {}) {
  return grouped_allreduce_async<detail::Prepare>(std::forward<Group>(group), op, options);
}

template <std::ranges::range R>
Prepared prepare_broadcast(R&& values, int root, const Options& options = {}) {
  return broadcast_async<detail::Prepare>(std::forward<R>(values), root, options);
}

inline Prepared prepare_barrier(const Options& options = {}) {
  return detail::Prepare::start(detail::make_call(HVD_BARRIER, options));
}

// ---- Messages between two ranks

inline constexpr int any_rank = HVD_ANY_RANK;  // NOLINT(readability-identifier-naming): an interface's name

// Sends to rank `peer` of the job, which must receive a range of the same size in bytes. Done when it may be reused.
template <std::ranges::range R>
Future<void> send_async(R&& values, int peer, const MessageOptions& options = {}) {
  detail::check_outlives_call<R>();
  return {detail::start_message(hvd_send, values, peer, options), [](hvd_work*) {}};
}

template <std::ranges::range R>
void send(const R& values, int peer, const MessageOptions& options = {}) {
  send_async(values, peer, options).get();
}

// Receives from rank `peer`, or any_rank, into the range. Returns the sender. Throws Mismatch if the sizes differ.
template <std::ranges::range R>
Future<int> receive_async(R&& values, int peer, const MessageOptions& options = {}) {
  detail::check_writable<R>();
  detail::check_outlives_call<R>();
  return {detail::start_message(hvd_receive, values, peer, options), [](hvd_work* work) {
            std::int32_t source = 0;
            detail::check(hvd_work_source(work, &source));
            return static_cast<int>(source);
          }};
}

template <std::ranges::range R>
int receive(R&& values, int peer, const MessageOptions& options = {}) {
  return receive_async(values, peer, options).get();
}

// Returns when all ranks have called it.
inline void barrier(const Options& options = {}) { detail::Perform::start(detail::make_call(HVD_BARRIER, options)); }

// This rank has no more data: until all ranks have joined, the others continue without it. In reductions it contributes
// neutral elements; to other collectives, no rows; operations that need it (a broadcast from it, an alltoall with rows
// for it) throw Mismatch on the other ranks. Returns the rank that joined last.
inline int join(const Options& options = {}) {
  return detail::Perform::start<int>(detail::make_call(HVD_JOIN, options), [](hvd_work* work) {
    std::int32_t rank = 0;
    detail::check(hvd_work_last_joined(work, &rank));
    return static_cast<int>(rank);
  });
}

}  // namespace v1
}  // namespace hvd
