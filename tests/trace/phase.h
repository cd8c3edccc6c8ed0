// The kinds of phases that a random program consists of. Each is performed by all ranks of a set, which draw the same
// numbers, so that all know what the others do.
#pragma once

#include <string>
#include <vector>

#include "tests/trace/trace.h"

namespace hvd::trace {

struct Phase {
  Trace& trace;
  const Set& set;
  int rank;
  Random random;
  std::string prefix;  // of names
  int length;          // about how many operations
  bool overlaps;       // a step's operations are under way together
};

// The same steps again and again, until the schedule locks; now and then one is different.
void repeat_steps(Phase& phase);
// One operation after another, of all kinds.
void mix_operations(Phase& phase);
// Calls that are wrong by themselves, that ranks disagree about, or that use a name that is in flight.
void make_errors(Phase& phase);
// Ranks have different numbers of steps, and join when theirs are done.
void join_early(Phase& phase);

// In sets that are added before and removed afterwards: of all ranks, members or not. The phase is that of all ranks.
void use_sets(Phase& phase, void (*body)(Phase&));

}  // namespace hvd::trace
