// Which server owns each shard, in the job's store, for jobs with one copy of each: shards are assigned round-robin and
// may move. The owner of a shard publishes that it has moved; server 0 publishes the moves that it has decided on from
// all servers' loads.
#pragma once

#include <cstdint>
#include <string>

#include "core/bootstrap/store.h"

namespace hvd {

class ShardDirectory {
 public:
  // `store` outlives this.
  ShardDirectory(const Store& store, int servers) : store_(store), servers_(servers) {}

  // All throw PeerLost, or Timeout if the store does not answer.
  int server_of(int shard) const { return read(shard, "at"); }
  int wanted_server_of(int shard) const { return read(shard, "wanted"); }
  // One step for all who read it: from now on the shard is the other server's.
  void has_moved(int shard, int from, int to) const { write(shard, "at", from, to); }
  void want(int shard, int from, int to) const { write(shard, "wanted", from, to); }

  // Bytes of its requests and answers so far.
  void add_load(int shard, std::uint64_t bytes) const {
    store_.add(key(shard, "load"), static_cast<std::int64_t>(bytes));
  }
  std::uint64_t load_of(int shard) const { return static_cast<std::uint64_t>(store_.add(key(shard, "load"), 0)); }

 private:
  // Counters, because hosts cache values: by how much the server's number is above that of the shard's first one.
  static std::string key(int shard, const char* what) { return "ps/shard/" + std::to_string(shard) + "/" + what; }
  int read(int shard, const char* what) const {
    return static_cast<int>((shard + store_.add(key(shard, what), 0)) % servers_);
  }
  void write(int shard, const char* what, int from, int to) const {
    store_.add(key(shard, what), (to - from + servers_) % servers_);
  }

  const Store& store_;
  const int servers_;
};

}  // namespace hvd
