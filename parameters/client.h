// A worker's way to the parameter servers of its job: tables, and pulls and pushes that may overlap.
//
// A call is cut into one message for each shard that has some of its rows (more if they are larger than a message),
// and is done when all have answered. Messages to a shard are answered in order, so a pull sees the worker's own
// earlier pushes. There is no thread: a call makes progress when it starts and while somebody waits for any call.
//
// A connection that breaks is made again (parameters/link.h), to the server that has the shard now, which may have been
// started again in the meantime; calls that do not concern it go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/base/mutex.h"
#include "core/bootstrap/store.h"
#include "core/net/authentication.h"
#include "parameters/table_spec.h"

namespace hvd {

struct WorkerOptions {
  int worker = 0;
  int workers = 1;  // 0: they come and go
  int servers = 1;
  int copies = 1, parts = 1;       // as ServerOptions
  Duration start_timeout = 30s;    // for a server that is started, again or for the first time
  Duration lease = kDefaultLease;  // how long a server's host may be silent
  Duration stall_warning = 60s;    // until a server that is waited for is named; zero: never
  bool shares_memory = true;
  std::string host_key{};
  WaitPolicy wait{};
  std::shared_ptr<Metrics> metrics{};  // what concerns waiting; null: nobody wants it

  int shards() const { return servers * parts; }
};

// Rows by key. The memory that it refers to must stay valid, and unchanged, until the call is done.
struct RowsCall {
  std::span<const std::uint64_t> keys{};  // empty and `is_whole`: all rows of a dense table, in order
  bool is_whole = false;
  const float* gradients = nullptr;  // push: `width` for each key; of the whole table: `values`
  float* rows = nullptr;             // pull: as gradients; may be the same memory
  std::size_t values = 0;            // whole table: floats in memory; what the last row has more is zero, or ignored
};

class ParameterClient {
 public:
  // Connects to all servers. `store` and `key` are the job's, `log` outlives it. Throws Timeout, PeerLost, Aborted.
  ParameterClient(const WorkerOptions& options, const Store& store, const JobKey& key, const Log& log);
  // Closes the connections; calls in progress fail. Without leave() servers take this worker for lost.
  ~ParameterClient();
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  // All functions: any thread.

  // Opens a table, or finds the open one. Returns its number in this process. `cache`: for so many clocks of this
  // worker pulls may be answered with rows that it has pulled before (parameters/row_cache.h); 0: never. Throws
  // Mismatch, InvalidArgument.
  int open(const TableSpec& spec, std::uint32_t cache = 0);
  struct CacheCounts {
    std::uint64_t found = 0, missing = 0;  // rows
  };
  CacheCounts cache_counts(int table) const;
  int servers() const;
  const TableSpec& spec(int table) const;

  class Call;
  using CallReference = std::shared_ptr<Call>;

  // Start calls. Throw InvalidArgument, PeerLost.
  CallReference pull(int table, const RowsCall& rows);
  CallReference push(int table, const RowsCall& rows);
  CallReference push_pull(int table, const RowsCall& rows);
  // Gives a whole dense table its first values, as `gradients`; rows that have some keep them.
  CallReference fill(int table, const RowsCall& rows);

  // Returns false at the deadline. Throws the call's error: InvalidArgument, PeerLost, ...
  bool wait(const CallReference& call, Deadline deadline);
  bool is_done(const CallReference& call);  // makes progress
  // Of a call that is done: the lowest version of the table among the servers that answered.
  static std::uint64_t version(const CallReference& call);
  // Nobody will wait for the call: flush() throws its error.
  void drop(const CallReference& call);
  // Until all calls are done. Throws the first error of dropped calls.
  bool flush(Deadline deadline);

  // This worker has finished another clock; tells all servers, waits for none.
  void advance_clock();
  std::uint32_t clock() const;
  // The lowest clock of all workers, as of the last answers.
  std::uint32_t min_clock() const;

  // Start calls to all servers. Throw as pull().
  CallReference set_learning_rate(int table, float rate);
  CallReference stats();
  CallReference snapshot(const std::string& folder);
  CallReference restore(const std::string& folder);
  // Of stats() that are done: by shard, lines "<table> <metric> <value>".
  static const std::vector<std::string>& texts(const CallReference& call);
  // This worker has no more to do. No other call may follow but wait().
  CallReference leave();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd
