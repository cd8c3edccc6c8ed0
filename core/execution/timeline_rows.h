// Records a bucket's operations in the timeline: they are performed from the construction to the end of the scope.
// Allocates nothing while no timeline is written. Engine thread.
#pragma once

#include <string>
#include <vector>

#include "core/execution/bucket_planner.h"
#include "core/timeline/timeline.h"

namespace hvd {

class TimelineRows {
 public:
  // Ends the negotiation of the operations that this rank has submitted, and begins all operations.
  TimelineRows(Timeline& timeline, const Bucket& bucket);
  ~TimelineRows();
  TimelineRows(const TimelineRows&) = delete;
  TimelineRows& operator=(const TimelineRows&) = delete;

  // The backend's part of the operations.
  void begin(const std::string& backend);
  void end();

 private:
  Timeline& timeline_;
  std::vector<const OperationSpec*> specs_;  // of each operation that has a row
  bool in_activity_ = false;
};

// Horovod's names: of the negotiation of an operation, of the operation, and of a backend's part in it, if Horovod has
// that backend.
std::string negotiation_activity(const OperationSpec& spec);
std::string operation_activity(const OperationSpec& spec);
std::string backend_activity(const std::string& backend, const OperationSpec& spec);

}  // namespace hvd
