#include "launcher/agents/own_hello.h"

#include <unistd.h>

#include "launcher/own_facts.h"

namespace hvd::launcher {

proto::Hello own_hello() {
  const HostFacts facts = own_facts();
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
