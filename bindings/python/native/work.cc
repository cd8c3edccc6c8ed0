#include "bindings/python/native/work.h"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "bindings/python/native/dlpack.h"
#include "bindings/python/native/process.h"
#include "bindings/python/native/status.h"

namespace py = pybind11;

namespace hvd::python {

// When the interpreter finalizes, it ends daemon threads that take the GIL again by unwinding their stacks. A
// destructor may not let that pass, and other destructors would run without the GIL. Such a thread blocks here until
// the process ends, as it does from CPython 3.14 on.
GilRelease::~GilRelease() {
  try {
    PyEval_RestoreThread(state_);
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}

namespace {

using Clock = std::chrono::steady_clock;

// The longest delay before a waiting thread handles a signal such as Ctrl-C.
constexpr std::int64_t kSliceUs = 100'000;

struct Dropped {
  hvd_work* work;
  py::object owners;
};

// Guarded by the GIL. Never destroyed: at exit there is no interpreter to release the references to.
std::vector<Dropped>& dropped_works() {
  static auto* works = new std::vector<Dropped>;
  return *works;
}

}  // namespace

void release_finished_works() {
  std::vector<Dropped>& works = dropped_works();
  if (works.empty()) return;
  const auto ended = std::stable_partition(works.begin(), works.end(),
                                           [](const Dropped& dropped) { return hvd_work_poll(dropped.work) == 0; });
  // Removed from the list before release: releasing an owner may run Python code, which may call this function again.
  const std::vector<Dropped> released(std::make_move_iterator(ended), std::make_move_iterator(works.end()));
  works.erase(ended, works.end());
  for (const Dropped& dropped : released) hvd_work_free(dropped.work);
}

Work::Work(const hvd_call& call, py::object owners) : device_(device_of(call)), owners_(std::move(owners)) {
  refuse_in_forked_child();
  release_finished_works();
  check(hvd_submit(&call, &work_));
}

Work::Work(StartMessage start, const hvd_message& message, py::object owners)
    : device_(HVD_CPU), owners_(std::move(owners)) {
  refuse_in_forked_child();
  release_finished_works();
  check(start(&message, &work_));
}

void Work::run(const hvd_call& call, py::object owners) {
  refuse_in_forked_child();
  release_finished_works();
  hvd_work* work = nullptr;
  hvd_status status = HVD_OK;
  {
    GilRelease released;
    status = hvd_run(&call, kSliceUs, &work);
  }
  if (work == nullptr) return check(status);
  Work held(work, call, std::move(owners));
  if (status != HVD_OK) held.wait(std::nullopt);
}

Work::~Work() {
  if (work_ == nullptr) return;
  // In a forked child the runtime's locks are in an unknown state; its copy of the work is not released.
  if (in_forked_child() || hvd_work_poll(work_) == 0) {
    dropped_works().push_back({work_, std::move(owners_)});
  } else {
    hvd_work_free(work_);
  }
}

bool Work::poll() const {
  refuse_in_forked_child();
  return hvd_work_poll(work_) != 0;
}

bool Work::wait(std::optional<double> timeout_seconds) {
  return wait_in_slices(timeout_seconds, [this](std::int64_t timeout_us) { return hvd_work_wait(work_, timeout_us); });
}

void Work::wait_on_stream(std::uintptr_t stream) {
  wait_in_slices(std::nullopt, [this, stream](std::int64_t timeout_us) {
    return hvd_work_wait_on_stream(work_, reinterpret_cast<void*>(stream), timeout_us);
  });
}

bool Work::wait_in_slices(std::optional<double> timeout_seconds,
                          const std::function<hvd_status(std::int64_t)>& wait_for) {
  refuse_in_forked_child();
  const auto start = Clock::now();
  for (;;) {
    std::int64_t slice_us = kSliceUs;
    if (timeout_seconds) {
      const std::chrono::duration<double> left =
          std::chrono::duration<double>(*timeout_seconds) - (Clock::now() - start);
      slice_us = static_cast<std::int64_t>(std::clamp(left.count() * 1e6, 0.0, static_cast<double>(kSliceUs)));
    }
    hvd_status status = HVD_OK;
    {
      GilRelease released;
      status = wait_for(slice_us);
    }
    // HVD_TIMEOUT may be the operation's own result: a second call then returns it.
    if (status == HVD_TIMEOUT && hvd_work_poll(work_) != 0) {
      check(hvd_work_wait(work_, 0));
      return true;
    }
    if (status != HVD_TIMEOUT) {
      check(status);
      return true;
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (timeout_seconds && slice_us == 0) return false;
  }
}

py::capsule Work::output(std::size_t i) {
  refuse_in_forked_child();
  hvd_tensor tensor{};
  check(hvd_work_take_output(work_, i, &tensor));
  return to_dlpack(tensor);
}

std::vector<std::int64_t> Work::received_splits() const {
  refuse_in_forked_child();
  const std::int64_t* splits = nullptr;
  std::size_t count = 0;
  check(hvd_work_received_splits(work_, &splits, &count));
  return {splits, splits + count};
}

int Work::last_joined() const {
  refuse_in_forked_child();
  std::int32_t rank = -1;
  check(hvd_work_last_joined(work_, &rank));
  return rank;
}

int Work::source() const {
  refuse_in_forked_child();
  std::int32_t rank = HVD_ANY_RANK;
  check(hvd_work_source(work_, &rank));
  return rank;
}

}  // namespace hvd::python
