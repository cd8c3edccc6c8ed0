// A worker's request to one shard, and where its answer goes: rows are in the caller's memory, contiguous or scattered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/net/byte_codec.h"
#include "parameters/client.h"
#include "parameters/message.h"
#include "parameters/row_cache.h"

namespace hvd {

// A call in progress: how many of its messages have no answer yet, and what went wrong first.
class ParameterClient::Call {
 public:
  int unanswered = 0;
  bool told = false;     // somebody has waited for it
  bool dropped = false;  // nobody will
  Status status;
  std::uint64_t version = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> own_keys;  // of a whole table: refers to no memory of the caller
  std::vector<std::string> texts;       // stats: the answers, by shard
  std::function<void()> at_end;         // called when all have answered
};

// What is sent to one shard: rows of a call, or a payload of another kind.
struct ShardMessage {
  PsRequest request;
  int table = -1;
  std::size_t width = 0;                // of the table's rows
  ParameterClient::CallReference call;  // null: nobody waits for it
  RowsCall rows{};
  std::vector<std::uint32_t> places{};  // of its rows within the call; empty: `request.rows` from `first` on
  std::uint32_t first = 0;
  Bytes payload{};
  RowCache* cache = nullptr;  // of the table, if it has one

  std::uint64_t key(std::size_t i) const { return rows.keys[places.empty() ? first + i : places[i]]; }
  bool has_rows() const { return request.op == PsOp::pull || has_gradients(); }
  bool has_gradients() const {
    return request.op == PsOp::push || request.op == PsOp::push_pull || request.op == PsOp::fill;
  }
  bool wants_rows() const { return rows.rows != nullptr; }

  std::size_t payload_bytes() const;
  void write_payload(std::byte* to) const;
  // The answer's rows, to the caller's memory; false if they are not as many floats as were wanted.
  bool copy_rows(std::span<const std::byte> answer) const;
  // The same into the table's cache, if it has one.
  void cache_rows(std::span<const std::byte> answer) const;

 private:
  void write_rows(std::byte* to) const;
};

}  // namespace hvd
