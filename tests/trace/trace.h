// Writes the trace of a random program on one rank: a line for each operation, and the runtime's counters for each
// phase.
#pragma once

#include <cstddef>
#include <map>
#include <ostream>
#include <string>

#include "tests/trace/execution.h"

namespace hvd::trace {

class Trace {
 public:
  // The job is joined, and no operation has been submitted.
  explicit Trace(std::ostream& out) : out_(out) {}

  // "12 p3.t1 allreduce float32[17,3] sum set 0 -> OK cbf29ce484222325". An outcome other than the expected one is
  // marked.
  void add(const std::string& name, const std::string& what, const Outcome& outcome, hvd_status expected);
  void add(const Operation& operation, const Outcome& outcome);

  // A phase begins. `decides`: what the runtime decides in it does not depend on time.
  void begin_phase(const std::string& title, bool decides);
  // Two lines: what is counted alike with any schedule, and what shows decisions. No schedule may be locked: other
  // ranks, which go on, would end it before or after the look at the counters.
  void end_phase();

  int unexpected() const { return unexpected_; }

 private:
  void add_counts(const char* what, std::initializer_list<const char*> names);
  double count(const std::string& name);

  std::ostream& out_;
  std::size_t lines_ = 0;
  int unexpected_ = 0;
  bool decides_ = false;
  std::map<std::string, double> before_, now_;
};

}  // namespace hvd::trace
