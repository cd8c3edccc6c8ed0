// The kernel's count of system calls. Needs root, as tracepoints do.
#pragma once

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

namespace hvd::bench {

inline constexpr const char* kTracepoint = "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id";

// All but sched_yield: how often a rank yields says how busy the machine is. Counts for the thread that makes it, and
// for those that this thread and its descendants start from then on.
class SystemCalls {
 public:
  SystemCalls() {
    perf_event_attr event{};
    event.size = sizeof event;
    event.type = PERF_TYPE_TRACEPOINT;
    event.inherit = 1;
    if (!(std::ifstream(kTracepoint) >> event.config)) throw std::runtime_error("no tracepoint for system calls");
    file_ = static_cast<int>(syscall(SYS_perf_event_open, &event, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
    const std::string filter = "id != " + std::to_string(SYS_sched_yield);
    if (file_ < 0 || ioctl(file_, PERF_EVENT_IOC_SET_FILTER, filter.c_str()) != 0) {
      throw std::runtime_error(std::string("cannot count system calls: ") + std::strerror(errno));
    }
  }
  ~SystemCalls() { close(file_); }
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;

  double so_far() const {
    std::uint64_t count = 0;
    if (read(file_, &count, sizeof count) != sizeof count) throw std::runtime_error("cannot read a counter");
    return static_cast<double>(count);
  }

 private:
  int file_ = -1;
};

}  // namespace hvd::bench
