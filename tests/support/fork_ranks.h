// Ranks as forked processes that meet through a real store server: for deaths by signal, leaks, and clocks of their
// own.
//
// The processes are forked before the store's thread starts, so that no child inherits half a thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "core/base/log.h"
#include "core/bootstrap/store_server.h"
#include "core/runtime/runtime.h"

namespace hvd::testing {

class ForkedRanks {
 public:
  // What a rank runs; its return value is the exit code, an exception is 99. It may make several runtimes, one after
  // the other: start() joins the job for the next time.
  using Start = std::function<std::unique_ptr<Runtime>()>;
  using Body = std::function<int(int rank, const Start& start)>;

  // `ranks_per_host`: so many are on one host, and the next ones on another; 0: all of them are on one.
  ForkedRanks(int size, const Environment& environment, const Body& body, int ranks_per_host = 0);
  // Kills what is left.
  ~ForkedRanks();

  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  void kill(int rank, int signal) const;
  // Exit code, or 128 + signal. Waits.
  int wait(int rank);

 private:
  std::vector<pid_t> pids_;
  Log log_;
  std::unique_ptr<StoreServerThread> server_;
};

}  // namespace hvd::testing
