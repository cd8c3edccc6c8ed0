#include "tests/trace/trace.h"

#include <cmath>
#include <iomanip>

namespace hvd::trace {

void Trace::add(const std::string& name, const std::string& what, const Outcome& outcome, hvd_status expected) {
  out_ << lines_++ << ' ' << (name.empty() ? "-" : name) << ' ' << what << " -> " << hvd_status_name(outcome.status);
  out_ << ' ' << std::hex << std::setw(16) << std::setfill('0') << outcome.hash << std::dec;
  if (outcome.last_joined >= 0) out_ << " last " << outcome.last_joined;
  if (!outcome.text.empty()) out_ << ' ' << std::quoted(outcome.text);
  if (outcome.status != expected) {
    ++unexpected_;
    out_ << " UNEXPECTED, not " << hvd_status_name(expected);
  }
  out_ << std::endl;
}

void Trace::add(const Operation& operation, const Outcome& outcome) {
  add(operation.name, describe(operation), outcome, operation.expected);
}

void Trace::begin_phase(const std::string& title, bool decides) {
  out_ << "phase " << title << std::endl;
  decides_ = decides;
}

// Left out, because they depend on time: seconds; control messages and their bytes (a node of the control tree passes
// on in parts what others are late for); rounds (what becomes ready at about the same time is answered at once); the
// causes of breaks (the first rank breaks a schedule and the others hear of it: only the sum is the same). Where
// operations overlap, buckets, cache hits and locks depend on how many of them are ready at a time. A rank for which
// others wait longer than 100 ms breaks a schedule as well: such a job says "late", and its decisions are not to be
// compared.
void Trace::end_phase() {
  now_ = metrics();
  now_["breaks"] = 0;
  for (const char* cause : {"new_operation", "order", "late", "leaving", "other_rank"}) {
    now_["breaks"] += now_[std::string("breaks_") + cause];
  }
  add_counts("counts", {"operations", "bytes"});
  if (decides_) add_counts("decisions", {"cache_hits", "cache_misses", "buckets", "locked_buckets", "breaks"});
  if (count("breaks_late") > 0) out_ << "late" << std::endl;
  before_ = now_;
}

void Trace::add_counts(const char* what, std::initializer_list<const char*> names) {
  out_ << what;
  for (const char* name : names) out_ << ' ' << name << '=' << std::llround(count(name));
  out_ << std::endl;
}

// Since the phase before has ended. A version that does not count this says 0.
double Trace::count(const std::string& name) { return now_[name] - before_[name]; }

}  // namespace hvd::trace
