// Establishes a worker's connection with a server for one shard: the greeting, and the tables. Waits for nothing but
// the job's store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/net/authentication.h"
#include "core/net/connection_attempt.h"
#include "parameters/client.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/table_spec.h"

namespace hvd {

// Who asks the servers.
struct WorkerIdentity {
  const WorkerOptions options;
  const Store store;
  const JobKey key;
  const Log& log;
  const std::uint64_t incarnation;  // of the worker's number in this job
};

class ServerAttempt {
 public:
  // Of `shard`, at the server of this number; opens the first `count` of the tables. `clock`: this worker's, as the
  // shard has confirmed it. The references outlive this. Throws PeerLost, Timeout if the server is not there yet.
  ServerAttempt(const WorkerIdentity& worker, int shard, int server, std::uint32_t clock,
                const std::deque<TableSpec>& tables, std::size_t count);

  // Returns true when everything is answered. Throws PeerLost, Timeout; Unsupported if the server does not answer for
  // the shard; what it refuses with.
  bool advance();
  // Until there may be something to advance.
  void wait(Deadline deadline);

  const PsAnswer& greeting() const { return *greeting_; }
  std::unique_ptr<Pipe> take_pipe() { return std::move(pipe_); }
  std::vector<std::uint16_t> take_table_numbers() { return std::move(table_numbers_); }
  // Whether pulls from the table of this number in `tables` need not wait for its first values.
  bool has_values(std::size_t table) const { return has_values_[table]; }

 private:
  bool advance_connection();
  void ask(PsOp op, std::span<const std::byte> payload);
  void ask_next();
  std::optional<PsAnswer> take_answer();

  const WorkerIdentity& worker_;
  const int shard_;
  const std::uint32_t clock_;
  const std::deque<TableSpec>& tables_;
  const std::size_t count_;
  bool shares_memory_ = false;
  std::optional<ConnectionAttempt> connection_{};  // until it has become pipe_
  bool is_authenticated_ = false;
  std::unique_ptr<Pipe> pipe_{};
  Deadline limit_;
  std::optional<PsAnswer> greeting_{};
  std::vector<std::uint16_t> table_numbers_{};  // at the server
  std::vector<bool> has_values_{};              // of the same tables
};

}  // namespace hvd
