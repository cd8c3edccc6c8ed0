#include "launcher/agents/own_hello.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "launcher/cpus.h"
#include "launcher/gpus.h"

namespace hvd::launcher {
proto::Hello own_hello() {
  proto::Hello hello;
  hello.set_version(HVD_VERSION);
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  hello.set_hostname(name);
  hello.set_pid(getpid());
  for (const Cpu& cpu : read_cpus(allowed_cpu_numbers())) {
    proto::Cpu& entry = *hello.add_cpus();
    entry.set_number(cpu.number);
    entry.set_core(cpu.core);
    entry.set_numa(cpu.numa);
    entry.set_socket(cpu.socket);
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) hello.set_visible_gpus(visible);
  hello.set_gpus(count_gpus(visible == nullptr ? std::nullopt : std::optional<std::string>(visible)));
  return hello;
}

}  // namespace hvd::launcher
