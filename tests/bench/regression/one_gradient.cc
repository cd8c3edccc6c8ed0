// A gradient's way, for a count of the files whose code it executes (tests/bench/executed_files.py): compiled with
// --coverage and linked with hvd's objects, which are compiled likewise.
//
//   hvdrun -np 4 one_gradient steady    writes the counters of ten steps, each two operations, submit to result; start
//                                       and end are left out
//   hvdrun -np 4 one_gradient start     writes the counters of init and the first operation
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hvd.h"

extern "C" void __gcov_reset(void);
extern "C" void __gcov_dump(void);

namespace {

constexpr std::size_t kElements = 1000;

void check(hvd_status status) {
  if (status == HVD_OK) return;
  std::fprintf(stderr, "one_gradient: %s\n", hvd_last_error());
  std::exit(1);
}

class Gradient {
 public:
  explicit Gradient(const char* name) : name_(name) { memory_.fill(1.0F); }

  void submit() {
    const std::int64_t shape[] = {kElements};
    hvd_tensor tensor = {memory_.data(), shape, 1, HVD_FLOAT32, HVD_CPU, 0};
    hvd_call call = HVD_CALL_INIT;
    call.collective = HVD_ALLREDUCE;
    call.name = name_;
    call.inputs = &tensor;
    call.outputs = &tensor;
    call.count = 1;
    check(hvd_submit(&call, &work_));
  }

  void wait() {
    check(hvd_work_wait(work_, -1));
    hvd_work_free(work_);
  }

 private:
  const char* name_;
  std::array<float, kElements> memory_;
  hvd_work* work_ = nullptr;
};

void perform_steps(int steps) {
  Gradient weight("weight"), bias("bias");
  for (int step = 0; step < steps; ++step) {
    weight.submit();
    bias.submit();
    weight.wait();
    bias.wait();
  }
}

}  // namespace

int main(int, char** arguments) {
  const bool steady = arguments[1] != nullptr && std::strcmp(arguments[1], "steady") == 0;
  check(hvd_init());
  if (steady) {
    perform_steps(50);
    __gcov_reset();
    perform_steps(10);
  } else {
    perform_steps(1);
  }
  __gcov_dump();
  perform_steps(1);  // no rank begins to end the job while another one still writes its counters
  check(hvd_shutdown());
}
