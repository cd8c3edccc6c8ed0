// Requests to a Shard as a worker sends them, one at a time, without a connection.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/net/byte_codec.h"
#include "parameters/shard.h"

namespace hvd {

struct ShardAnswer {
  PsAnswer header;
  Bytes payload;

  std::vector<float> rows() const {
    std::vector<float> values(payload.size() / sizeof(float));
    std::memcpy(values.data(), payload.data(), payload.size());
    return values;
  }
  std::string text() const { return {reinterpret_cast<const char*>(payload.data()), payload.size()}; }
};

inline ShardAnswer apply_to(Shard& shard, PsRequest request, std::span<const std::byte> payload = {}) {
  request.bytes = static_cast<std::uint32_t>(payload.size());
  ShardAnswer answer;
  answer.payload.resize(shard.answer_bytes(request));
  answer.header = shard.apply(request, payload, answer.payload);
  return answer;
}

inline Bytes payload_of(std::span<const std::uint64_t> keys, std::span<const float> gradients = {}) {
  ByteWriter to;
  to.put_bytes(std::as_bytes(keys));
  to.put_bytes(std::as_bytes(gradients));
  return to.take();
}

class ShardCaller {
 public:
  ShardCaller(Shard& shard, std::uint32_t worker, std::uint32_t workers, std::uint64_t incarnation = 1)
      : shard_(shard), worker_(worker), workers_(workers), incarnation_(incarnation) {
    clock_ = static_cast<std::uint32_t>(hello().version);
  }

  PsAnswer hello() {
    const PsHello greeting{.workers = workers_};
    return apply_to(shard_, header(PsOp::hello), std::as_bytes(std::span(&greeting, 1))).header;
  }

  std::uint16_t open(const TableSpec& spec) {
    ByteWriter to;
    to.put(spec);
    return static_cast<std::uint16_t>(apply_to(shard_, header(PsOp::open_table), to.take()).header.rows);
  }

  // What the next request of this kind says.
  PsRequest header(PsOp op, std::uint16_t table = 0, std::size_t rows = 0) const {
    return {.op = op,
            .table = table,
            .sequence = sequence_,
            .incarnation = incarnation_,
            .worker = worker_,
            .clock = clock_,
            .shard = shard_.number(),
            .rows = static_cast<std::uint32_t>(rows)};
  }

  bool may_pull(std::uint16_t table) const { return shard_.is_ready(header(PsOp::pull, table)); }

  std::vector<float> pull(std::uint16_t table, const std::vector<std::uint64_t>& keys) {
    ++sequence_;
    return apply_to(shard_, header(PsOp::pull, table, keys.size()), payload_of(keys)).rows();
  }

  PsAnswer push(std::uint16_t table, const std::vector<std::uint64_t>& keys, const std::vector<float>& gradients) {
    ++sequence_;
    return apply_to(shard_, header(PsOp::push, table, keys.size()), payload_of(keys, gradients)).header;
  }

  PsAnswer advance_clock() {
    ++sequence_;
    ++clock_;
    return apply_to(shard_, header(PsOp::clock)).header;
  }

  void leave() { apply_to(shard_, header(PsOp::leave)); }

  PsAnswer set_learning_rate(std::uint16_t table, float rate) {
    ++sequence_;
    return apply_to(shard_, header(PsOp::learning_rate, table), std::as_bytes(std::span(&rate, 1))).header;
  }

  std::string stats() const { return shard_.stats(); }

  std::uint32_t clock() const { return clock_; }

 private:
  Shard& shard_;
  const std::uint32_t worker_, workers_;
  const std::uint64_t incarnation_;
  std::uint64_t sequence_ = 0;
  std::uint32_t clock_ = 0;
};

// All parts of a shard's state.
inline std::vector<Bytes> state_of(const Shard& shard) {
  std::vector<Bytes> parts;
  for (StatePosition position;;) {
    parts.push_back(shard.write_state(position));
    if (parts.back().empty()) break;
  }
  parts.pop_back();
  return parts;
}

inline void add_state(Shard& shard, const std::vector<Bytes>& parts) {
  for (const Bytes& part : parts) shard.read_state(part);
}

}  // namespace hvd
