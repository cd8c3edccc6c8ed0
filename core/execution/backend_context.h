// The input of the data plane's factory, and its result. References outlive the backends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/device/device_runtime.h"
#include "core/execution/backend.h"
#include "core/execution/tensor_arena.h"
#include "core/net/authentication.h"

namespace hvd {

struct BackendContext {
  const Topology& topology;
  Store& store;  // of this membership epoch; during construction only
  const JobKey& job_key;
  const Config& config;
  AbortFlag& abort;
  const Log& log;
  std::string local_host_address;  // at which other hosts reach this one
  Deadline deadline;               // for construction
};

struct DataPlane {
  std::vector<std::unique_ptr<Backend>> backends;
  std::shared_ptr<TensorArena> arena;           // null where no memory is shared; may outlive the backends
  std::int64_t bucket_bytes = 0;                // of small tensors that are worth fusing
  std::shared_ptr<DeviceRuntime> devices = {};  // null: no backend supports tensors on devices
  std::string algorithms = {};                  // which algorithm serves what, and why: lines for people
};

// All ranks call it together. Core names no implementation: the code that makes the runtime passes the factory.
using DataPlaneFactory = std::function<DataPlane(const BackendContext&)>;

}  // namespace hvd
