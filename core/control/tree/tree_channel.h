// The control channel of real jobs, along the control tree: mailboxes in shared memory inside a host, connections
// between hosts, and along all edges a connection for failure detection (control_links.h).
#pragma once

#include <memory>
#include <string>

#include "core/base/metrics.h"
#include "core/bootstrap/store.h"
#include "core/control/tree/control_channel.h"
#include "core/net/authentication.h"

namespace hvd {

struct TreeChannelOptions {
  const Topology& topology;
  Store& store;
  const JobKey& key;
  std::string local_host;  // address under which other ranks reach this host
  Duration lease = kDefaultLease;
  bool shared_memory = true;
  AbortFlag& abort;
  const Log& log;
  Metrics& metrics;
  Deadline deadline;
  // The channel of the whole job, if this one serves a subset: it detects failures and reports the job's end.
  ControlChannel* job = nullptr;
};

// All ranks must call it together.
std::unique_ptr<ControlChannel> make_tree_channel(const TreeChannelOptions& options);

}  // namespace hvd
