#include "launcher/agents/local_hello.h"

#include <unistd.h>

#include "launcher/describe_local_host.h"

namespace hvd::launcher {

proto::Hello local_hello() {
  const HostDescription facts = describe_local_host();
  proto::Hello hello;
  hello.set_version(HVD_VERSION);
  hello.set_hostname(facts.hostname);
  hello.set_pid(getpid());
  for (const Cpu& cpu : facts.resources.cpus) {
    proto::Cpu& entry = *hello.add_cpus();
    entry.set_number(cpu.number);
    entry.set_core(cpu.core);
    entry.set_numa(cpu.numa);
    entry.set_socket(cpu.socket);
  }
  if (facts.visible_gpus) hello.set_visible_gpus(*facts.visible_gpus);
  hello.set_gpus(facts.resources.gpus);
  return hello;
}

}  // namespace hvd::launcher
