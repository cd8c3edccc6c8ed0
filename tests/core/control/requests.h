// Short ways to write requests and messages, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/control/protocol/rank_message.h"
#include "core/operation/request.h"

namespace hvd {

inline Request make_request(Collective collective, std::string name, Shape shape = {2, 3}) {
  Request request;
  request.name = std::move(name);
  request.collective = collective;
  if (collective != Collective::barrier && collective != Collective::join) {
    request.tensors = {{DType::float32, std::move(shape)}};
  }
  return request;
}

inline Request allreduce(std::string name, Shape shape = {2, 3}) {
  return make_request(Collective::allreduce, std::move(name), std::move(shape));
}
inline Request allgather(std::string name, Shape shape) {
  return make_request(Collective::allgather, std::move(name), std::move(shape));
}
inline Request broadcast(std::string name, int root) {
  Request request = make_request(Collective::broadcast, std::move(name));
  request.root = root;
  return request;
}
inline Request alltoall(std::string name, std::vector<std::int64_t> splits) {
  std::int64_t rows = 0;
  for (const auto split : splits) rows += split;
  Request request = make_request(Collective::alltoall, std::move(name), {rows, 4});
  request.splits = std::move(splits);
  return request;
}
inline Request reducescatter(std::string name, Shape shape) {
  return make_request(Collective::reducescatter, std::move(name), std::move(shape));
}
inline Request barrier(std::string name) { return make_request(Collective::barrier, std::move(name)); }
inline Request join() { return make_request(Collective::join, "join"); }

// What one rank says for itself.
inline SubtreeMessage said_by(int rank, RankMessage message) {
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
