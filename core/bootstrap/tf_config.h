// Reads the cluster that TF_CONFIG describes to TensorFlow's MultiWorkerMirroredStrategy, as a job. Pure.
//
//   {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
//    "task": {"type": "worker", "index": 0}}
//
// The chief, if there is one, is rank 0, and the workers follow in their order. An evaluator works alone, outside the
// job. Parameter servers have no function, and are refused.
#pragma once

#include <string>

#include "core/bootstrap/launch_environment.h"

namespace hvd {

// Launcher::none if there is no cluster, or it has only one member of the job. Throws InvalidArgument.
Launch read_tf_config(const std::string& text);

}  // namespace hvd
