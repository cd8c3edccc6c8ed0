#include "launcher/plan/describe_local_host.h"

#include <unistd.h>

#include <cstdlib>

#include "launcher/plan/cpus.h"
#include "launcher/plan/gpus.h"

namespace hvd::launcher {

std::string local_hostname() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

HostDescription describe_local_host() {
  HostDescription facts;
  facts.hostname = local_hostname();
  facts.resources.cpus = read_cpus(allowed_cpu_numbers());
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_gpus = visible;
  facts.resources.gpus = count_gpus(facts.visible_gpus);
  return facts;
}

}  // namespace hvd::launcher
