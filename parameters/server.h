// A parameter server: some shards of all tables, and the connections of the workers to them. With two copies, server s
// and the next one have shard s, and a server has two: it answers for its own, and for the other once that server is
// lost. With one copy and several parts for each server, shards move from servers with much to do to others
// (parameters/shard_directory.h).
//
// One thread reads requests, applies them and answers, so that a row has one writer and no lock. It takes requests that
// nobody has announced, and outlives its workers: it has no part in the job's collectives, nor in their abort flag.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/bootstrap/store.h"
#include "core/config.h"
#include "core/net/authentication.h"

namespace hvd {

// Where the servers of a job are announced in its store.
namespace ps_keys {
inline std::string starts(int server) { return "ps/server/" + std::to_string(server) + "/starts"; }
inline std::string place(int server, std::int64_t start) {
  return "ps/server/" + std::to_string(server) + "/" + std::to_string(start);
}
inline std::string generation(std::uint32_t shard, std::uint64_t number) {
  return "ps/shard/" + std::to_string(shard) + "/" + std::to_string(number);
}
inline std::string incarnations(int worker) { return "ps/worker/" + std::to_string(worker); }
}  // namespace ps_keys

constexpr Duration kPlaceTime = std::chrono::milliseconds(50);  // to read a place that the store has

// What a server announces: addresses, and the identity of its host.
struct ServerAddresses {
  std::string local;     // of an abstract socket; empty: none
  std::string remote;    // of a TCP port
  std::string host_key;  // RankIdentity's

  static void fields(auto& self, const auto& each) { each(self.local, self.remote, self.host_key); }
};

struct ServerOptions {
  int server = 0;
  int servers = 1;
  int copies = 1;             // of each shard: 1 or 2
  int parts = 1;              // shards for each server; more than one only if copies is 1
  Duration load_window = 5s;  // by which loads are compared, to move shards
  std::size_t memory = 0;     // limit in bytes for `parts` shards; 0: none
  std::string snapshot{};  // a folder: of snapshots at intervals, and for a server that is started again; empty: none
  Duration interval{};     // of snapshots; zero: none
  Duration start_timeout = 30s;    // for the other server of a shard, at the start
  Duration lease = kDefaultLease;  // how long a worker's connection may be broken
  Duration stall_warning = 60s;    // until a worker that keeps others waiting is named; zero: never
  bool shares_memory = true;
  std::string host_key{};
  std::string local_host = "127.0.0.1";
  std::shared_ptr<Metrics> metrics{};  // its `shards`; null: nobody wants them

  int shards() const { return servers * parts; }
};

class ParameterServer {
 public:
  // Announces itself in the store. `log` outlives it. Throws InvalidArgument (copies without a
  // second server), Internal, PeerLost, Timeout.
  ParameterServer(const ServerOptions& options, const Store& store, const JobKey& key, const Log& log);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  // Serves until all workers have left, or stop(). Throws Internal.
  void run();
  // Any thread, and signal handlers.
  void stop() noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
