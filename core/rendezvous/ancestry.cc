#include "core/rendezvous/ancestry.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace hvd {

namespace {

// 0: there is no such process, or none that this one can see.
int parent_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');  // the name may have spaces, and parentheses
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  char state = 0;
  int parent = 0;
  rest >> state >> parent;
  return rest ? parent : 0;
}

}  // namespace

bool is_started_by(int pid) {
  if (pid <= 0) return false;
  for (int ancestor = getppid(); ancestor > 0; ancestor = parent_of(ancestor)) {
    if (ancestor == pid) return true;
  }
  return false;
}

}  // namespace hvd
