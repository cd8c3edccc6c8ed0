// What a backend is built from, at start. References outlive the backends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/config.h"
#include "core/execution/backend.h"
#include "core/net/authentication.h"
#include "core/rendezvous/store.h"
#include "core/rendezvous/topology.h"

namespace hvd {

struct BackendContext {
  const Topology& topology;
  Store& store;  // of this membership epoch; during construction only
  const JobKey& job_key;
  const Config& config;
  AbortFlag& abort;
  const Log& log;
  std::string own_host_address;  // under which other hosts reach this one
  Deadline deadline;             // for construction
};

// All ranks call it together. Core names no implementation: whoever puts the runtime together passes the factory.
using BackendFactory = std::function<std::vector<std::unique_ptr<Backend>>(const BackendContext&)>;

}  // namespace hvd
