// Performs buckets: builds the call, picks the backend, completes the works. Engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/base/metrics.h"
#include "core/config.h"
#include "core/execution/backend.h"
#include "core/execution/direct_call.h"
#include "core/execution/timeline_rows.h"
#include "core/fusion/bucket.h"
#include "core/submission/pending_table.h"

namespace hvd {

class Executor {
 public:
  // `rank` is this process's global rank.
  Executor(std::vector<std::unique_ptr<Backend>> backends, int rank, const Config& config, Metrics& metrics,
           Timeline& timeline)
      : backends_(std::move(backends)),
        rank_(rank),
        join_divisor_(config.join_divisor),
        metrics_(metrics),
        timeline_(timeline) {}

  // Throws what the backend throws: the data plane is broken then, and the job with it. A call that no backend can do
  // ends with an error on its works only, on every rank alike. False if the bucket was asked for and another rank has
  // declined it: nothing has happened then.
  bool run(const Bucket& bucket, const ProcessSet& set, PendingTable& pending, Entry entry = Entry::settled);

  // What run() would do with a bucket of one tensor that a caller has in its memory; PreparedCall without a request if
  // the bucket is another one.
  PreparedCall prepare(const Bucket& bucket, const ProcessSet& set) const;
  // Performs it, Entry::asking. False if another rank has declined.
  bool run(PreparedCall& prepared, const DirectCall& direct);

  // As Backend's, of all backends.
  bool can_be_asked(const ProcessSet& set) const;
  void decline(const ProcessSet& set);
  void set_late_callback(Duration patience, const std::function<bool()>& late);

 private:
  // Ok, or that there is no backend for it. Throws Declined.
  Status run(const CollectiveCall& call, TimelineRows& rows);
  void take_back(const Bucket& bucket, const PendingTable& pending);

  std::vector<std::unique_ptr<Backend>> backends_;
  const int rank_;
  const JoinDivisor join_divisor_;
  Metrics& metrics_;
  Timeline& timeline_;
  std::map<std::int32_t, std::uint64_t> sequences_;  // calls so far, by process set
};

// Takes the submission out of the table and completes its work, if this rank has it.
void complete_pending(PendingTable& pending, std::int32_t process_set, const std::string& name, const Status& status);

}  // namespace hvd
