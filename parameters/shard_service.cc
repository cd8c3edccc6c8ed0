#include "parameters/shard_service.h"

#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "parameters/pipe.h"

namespace hvd {

namespace {

constexpr int kRequestsPerTurn = 64;  // of one connection, before the others have theirs

std::string folder_in(std::span<const std::byte> payload) {
  std::string folder(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (folder.empty() || folder.find('\0') != std::string::npos) throw InvalidArgument("a snapshot needs a folder");
  return folder;
}

}  // namespace

bool ShardService::serve(ServerConnection& client) {
  int answered = 0;
  for (; answered < kRequestsPerTurn; ++answered) {
    const std::span<const std::byte> input = client.pipe->input();
    client.unread = input.size();
    if (input.size() < kPsHeaderBytes) break;
    const PsRequest request = parse_request(input.first<kPsHeaderBytes>());
    const std::size_t frame = ps_frame_bytes(request.bytes);
    if (input.size() < frame) break;
    if (!answer(client, request, input.subspan(kPsHeaderBytes, request.bytes))) break;
    client.waits_since.reset();
    client.pipe->consume(frame);
  }
  client.pipe->flush();
  return answered > 0;
}

bool ShardService::answer(ServerConnection& client, const PsRequest& request, std::span<const std::byte> payload) {
  try {
    if (client.is_primary || request.op == PsOp::follow) return take_from_primary(client, request, payload);
    if (is_between_servers(request.op)) throw Internal("a worker sends what only servers send");
    return answer_worker(client, request, payload);
  } catch (const InvalidArgument& error) {
    return refuse(client, request, error);
  } catch (const Error& error) {
    if (error.code() == StatusCode::internal) throw;  // it does not speak the protocol
    return client.answer_error(request, error);
  } catch (const std::bad_alloc&) {
    return refuse_without_memory(client, request);
  }
}

bool ShardService::answer_worker(ServerConnection& client, const PsRequest& request,
                                 std::span<const std::byte> payload) {
  HeldShard* const held = shards_.find(static_cast<int>(request.shard));
  if (held == nullptr || !answers_for(*held)) {
    throw Unsupported("server " + std::to_string(options_.server) + " does not answer for shard " +
                      std::to_string(request.shard));
  }
  ReplicatedShard& replicated = held->replicated();
  const Shard& shard = held->shard();
  if (!held->is_open()) return client.wait_for("a second server, which is to keep the copy of its shard");
  if (request.op == PsOp::snapshot) return answer_snapshot(client, shard, request, payload);
  if (request.op == PsOp::stats) return client.answer_text(request, StatusCode::ok, replicated.stats());
  if (!shard.is_ready(request)) {
    return client.wait_for(shard.has_values(request) ? "" : "rank 0's first values of a table");
  }
  const std::size_t bytes = shard.answer_bytes(request);
  std::byte* const to = client.room_for(bytes);
  if (to == nullptr) return false;
  std::optional<PsAnswer> result;
  try {
    result = request.op == PsOp::restore ? held->restore(request, folder_in(payload))
                                         : replicated.apply(request, payload, {to + kPsHeaderBytes, bytes});
  } catch (...) {
    client.pipe->commit(0);
    throw;
  }
  if (!result) {
    client.pipe->commit(0);
    return false;
  }
  std::memcpy(to, &*result, sizeof *result);
  const std::uint64_t begin = client.pipe->committed();
  client.pipe->commit(ps_frame_bytes(bytes));
  replicated.add_load(ps_frame_bytes(request.bytes) + ps_frame_bytes(bytes));
  if (changes_shard(request.op)) client.hold_until_replicated(replicated, begin);
  note(client, request);
  return true;
}

bool ShardService::answers_for(HeldShard& held) {
  if (held.role() != Role::replica || connections_.has_primary_of(held.number())) return held.is_primary();
  return shards_.take_over(held);
}

// Answered when the file is complete. A second request waits until then.
bool ShardService::answer_snapshot(ServerConnection& client, const Shard& shard, const PsRequest& request,
                                   std::span<const std::byte> payload) {
  if (!client.is_answering) {
    if (!snapshots_.is_free()) return client.wait_for("a snapshot");
    snapshots_.start(shard, folder_in(payload));
    client.is_answering = true;
  }
  if (!snapshots_.is_done()) return client.wait_for("a snapshot");
  const std::string& failure = snapshots_.failure();
  if (!(failure.empty() ? client.answer(request) : client.answer_error(request, Internal(failure)))) {
    return false;
  }
  client.is_answering = false;
  snapshots_.end();
  return true;
}

// What is numbered is refused once and for all: repeated on another connection, it must not be taken for what was
// applied, because later requests were.
bool ShardService::refuse(ServerConnection& client, const PsRequest& request, const InvalidArgument& error) {
  HeldShard* const held = shards_.find(static_cast<int>(request.shard));
  if (!is_numbered(request.op) || client.is_primary || held == nullptr || !held->is_primary()) {
    return client.answer_error(request, error);
  }
  ReplicatedShard& replicated = held->replicated();
  if (!client.has_room_for(std::string_view(error.what()).size()) || !replicated.refuse(request, error.what())) {
    return false;
  }
  const std::uint64_t begin = client.pipe->committed();
  client.answer_error(request, error);
  client.hold_until_replicated(replicated, begin);
  return true;
}

// The request may have been applied in part, and its replica does not have it.
bool ShardService::refuse_without_memory(ServerConnection& client, const PsRequest& request) {
  HeldShard* const held = shards_.find(static_cast<int>(request.shard));
  try {
    if (held != nullptr && held->is_primary() && changes_shard(request.op)) held->renew_replica();
  } catch (const Error& error) {
    return client.answer_error(request, error);
  }
  return client.answer_error(request, Internal("the server is out of memory"));
}

void ShardService::note(ServerConnection& client, const PsRequest& request) {
  if (request.op == PsOp::leave) client.has_left = true;
  if (request.op != PsOp::hello) return;
  client.worker = static_cast<int>(request.worker);
  client.shard = static_cast<int>(request.shard);
  shards_.greet_worker(client.shard, client.worker);
}

// From the primary of a shard whose replica is to be here.
bool ShardService::take_from_primary(ServerConnection& client, const PsRequest& request,
                                     std::span<const std::byte> payload) {
  if (!client.has_room_for(0)) return false;
  if (request.op == PsOp::follow) {
    begin_replica(client, request);
  } else {
    HeldShard* const held = shards_.find(client.shard);
    if (held == nullptr) throw Internal("a superseded replication connection is still sending");
    held->receive(request, payload);
  }
  return client.answer(request);
}

void ShardService::begin_replica(ServerConnection& client, const PsRequest& request) {
  const int number = static_cast<int>(request.shard);
  shards_.begin_replica(request.shard);
  for (ServerConnection& other : connections_.all()) {
    const bool is_earlier_attempt = &other != &client && other.is_primary && other.shard == number;
    if (is_earlier_attempt) other.shard = kNoNumber;
  }
  client.is_primary = true;
  client.shard = number;
}

}  // namespace hvd
