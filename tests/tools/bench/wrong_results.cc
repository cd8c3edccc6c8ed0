// Makes bench_wrong of hvd-bench: on rank 1 one element of each allreduce's result comes out wrong. The program's own
// hvd_run, hvd_submit and hvd_work_wait stand before those of libhvd.so, which they call.
#include <dlfcn.h>
#include <hvd.h>

#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace {

void* result_to_spoil = nullptr;

template <typename Function>
Function* of_library(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_spoiled(const hvd_call& call) {
  const char* rank = std::getenv("HVD_RANK");
  return rank != nullptr && std::string_view(rank) == "1" && call.name != nullptr &&
         std::string_view(call.name) == "bench.0";
}

void spoil(void* result) { *static_cast<std::byte*>(result) ^= std::byte{1}; }

}  // namespace

hvd_status hvd_run(const hvd_call* call, int64_t timeout_us, hvd_work** work) {
  const hvd_status status = of_library<decltype(hvd_run)>("hvd_run")(call, timeout_us, work);
  if (is_spoiled(*call)) spoil(call->outputs[0].data);
  return status;
}

hvd_status hvd_submit(const hvd_call* call, hvd_work** work) {
  if (is_spoiled(*call)) result_to_spoil = call->outputs[0].data;
  return of_library<decltype(hvd_submit)>("hvd_submit")(call, work);
}

hvd_status hvd_work_wait(hvd_work* work, int64_t timeout_us) {
  const hvd_status status = of_library<decltype(hvd_work_wait)>("hvd_work_wait")(work, timeout_us);
  if (result_to_spoil != nullptr) spoil(result_to_spoil);
  result_to_spoil = nullptr;
  return status;
}
