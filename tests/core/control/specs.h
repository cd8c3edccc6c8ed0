// Short ways to write specs and messages, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/control/protocol/messages.h"
#include "core/operation/operation_spec.h"

namespace hvd {

inline OperationSpec make_spec(Collective collective, std::string name, Shape shape = {2, 3}) {
  OperationSpec spec;
  spec.name = std::move(name);
  spec.collective = collective;
  if (collective != Collective::barrier && collective != Collective::join) {
    spec.tensors = {{DType::float32, std::move(shape)}};
  }
  return spec;
}

inline OperationSpec allreduce(std::string name, Shape shape = {2, 3}) {
  return make_spec(Collective::allreduce, std::move(name), std::move(shape));
}
inline OperationSpec allgather(std::string name, Shape shape) {
  return make_spec(Collective::allgather, std::move(name), std::move(shape));
}
inline OperationSpec broadcast(std::string name, int root) {
  OperationSpec spec = make_spec(Collective::broadcast, std::move(name));
  spec.root = root;
  return spec;
}
inline OperationSpec alltoall(std::string name, std::vector<std::int64_t> splits) {
  std::int64_t rows = 0;
  for (const auto split : splits) rows += split;
  OperationSpec spec = make_spec(Collective::alltoall, std::move(name), {rows, 4});
  spec.splits = std::move(splits);
  return spec;
}
inline OperationSpec reducescatter(std::string name, Shape shape) {
  return make_spec(Collective::reducescatter, std::move(name), std::move(shape));
}
inline OperationSpec barrier(std::string name) { return make_spec(Collective::barrier, std::move(name)); }
inline OperationSpec join() { return make_spec(Collective::join, "join"); }

// What one rank says for itself.
inline SubtreeMessage sent_by(int rank, RankMessage message) {
  message.ranks = RankSet(rank);
  message.latest = message.applied;
  SubtreeMessage whole{.applied_by_all = message.applied};
  whole.messages.push_back(std::move(message));
  return whole;
}

inline std::string describe_test_rank(int rank) {
  return "rank " + std::to_string(rank) + " on host-" + std::string(1, static_cast<char>('a' + rank % 26));
}

}  // namespace hvd
