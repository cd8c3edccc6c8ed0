#include "core/rendezvous/ancestry.h"

#include <unistd.h>

#include "core/base/process_stat.h"

namespace hvd {

bool is_started_by(int pid) {
  if (pid <= 0) return false;
  for (pid_t ancestor = getppid(); ancestor > 0;) {
    if (ancestor == pid) return true;
    const auto entry = read_process_stat(ancestor);
    ancestor = entry ? entry->parent : 0;
  }
  return false;
}

}  // namespace hvd
