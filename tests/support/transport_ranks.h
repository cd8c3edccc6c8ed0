// Ranks as threads of this process, each with a transport and nothing else: what tests of transports and algorithms
// run on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/futex.h"
#include "core/base/status.h"
#include "ops/transport/transport.h"

namespace hvd::testing {

enum class TransportKind {
  local,
  tcp,
  striped_tcp
};  // the last with three connections to each peer on each of two networks

const char* transport_name(TransportKind kind);

// The transport is to be kept no longer than the body needs it: dropping it is how a rank leaves.
using RankBody = std::function<void(std::unique_ptr<Transport> transport)>;

struct TransportRun {
  TransportKind kind = TransportKind::local;
  int size = 1;
  const AbortFlag* abort = nullptr;  // polled by all transports; null: one that is never raised
  WaitPolicy policy{};               // of tcp
};

// Runs the body on each rank; returns how each ended, by rank.
std::vector<Status> run_transport_ranks(const TransportRun& run, const RankBody& body);

// The same for bodies that succeed: throws the text of all failures.
void run_all_well(const TransportRun& run, const RankBody& body);

}  // namespace hvd::testing
