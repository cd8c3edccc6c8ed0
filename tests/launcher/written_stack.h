// A rank that writes its stacks on request, as a Python process does.
#pragma once

#include <unistd.h>

namespace hvd::launcher {

inline int stacks_file = -1;  // to which it writes

inline void write_stack(int) {
  constexpr char kText[] = "Current thread 0x1 (most recent call first):\n  File \"train.py\", line 48 in load\n";
  static_cast<void>(write(stacks_file, kText, sizeof kText - 1));
}

}  // namespace hvd::launcher
