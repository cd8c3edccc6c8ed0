// Answers the requests that a parameter server reads: those of workers, and those of the primary of a shard whose
// replica is here. Used by the server's thread.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/error.h"
#include "parameters/held_shard.h"
#include "parameters/message.h"
#include "parameters/server.h"
#include "parameters/server_connection.h"
#include "parameters/shard.h"
#include "parameters/snapshot_writer.h"

namespace hvd {

class ShardService {
 public:
  // The references outlive this.
  ShardService(const ServerOptions& options, HeldShards& shards, ServerConnections& connections,
               SnapshotWriter& snapshots)
      : options_(options), shards_(shards), connections_(connections), snapshots_(snapshots) {}

  // Answers requests of the connection until one has to wait, or the others are to have their turn. Returns whether any
  // was answered. Throws Internal if the peer does not speak the protocol, PeerLost.
  bool serve(ServerConnection& client);

 private:
  // Each returns false if the request has to wait: nothing has happened, and it is asked again.
  bool answer(ServerConnection& client, const PsRequest& request, std::span<const std::byte> payload);
  bool answer_worker(ServerConnection& client, const PsRequest& request, std::span<const std::byte> payload);
  bool answer_snapshot(ServerConnection& client, const Shard& shard, const PsRequest& request,
                       std::span<const std::byte> payload);
  bool refuse(ServerConnection& client, const PsRequest& request, const InvalidArgument& error);
  bool refuse_without_memory(ServerConnection& client, const PsRequest& request);
  bool take_from_primary(ServerConnection& client, const PsRequest& request, std::span<const std::byte> payload);

  // Whether this server answers for the shard: it does, or it has the replica and the primary is lost.
  bool answers_for(HeldShard& held);
  void note(ServerConnection& client, const PsRequest& request);
  void begin_replica(ServerConnection& client, const PsRequest& request);

  const ServerOptions& options_;
  HeldShards& shards_;
  ServerConnections& connections_;
  SnapshotWriter& snapshots_;
};

}  // namespace hvd
