// Tables on parameter servers in C++, over hvd_ps.h:
//
//   hvd::Session session;
//   hvd::ps::Servers servers;
//   hvd::ps::Table table = servers.open({.name = "words", .width = 64, .optimizer = {.rule = HVD_PS_ADAGRAD}});
//   table.pull(keys, rows);                                // spans of keys, and of width values for each
//   hvd::ps::Call pushed = table.push_async(keys, gradients);
//   servers.clock();
//
// docs/parameter-server.md says what tables are. A Call waits in its destructor; the memory given must stay valid until
// then. A server's process calls hvd::ps::serve() instead of joining the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hvd/error.hpp"
#include "hvd_ps.h"

namespace hvd {
inline namespace v1 {
namespace ps {

// Serves until all workers have left, or SIGTERM.
inline void serve() { detail::check(hvd_ps_serve()); }

// Registers an update function for tables of the rule HVD_PS_CUSTOM. Call it in every process that serves, before
// serve() or the first Servers. `context` must stay valid as long as the process serves.
inline void register_update(const std::string& name, hvd_ps_update update, void* context = nullptr) {
  detail::check(hvd_ps_register_update(name.c_str(), update, context));
}

// As hvd_ps_optimizer.
struct OptimizerOptions {
  hvd_ps_rule rule = HVD_PS_SGD;
  bool row_wise = false;
  bool nesterov = false;
  float learning_rate = 0.01f, momentum = 0, weight_decay = 0, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
  float accumulator = 0, beta = 1, l1 = 0, l2 = 0;
  std::string update{};  // HVD_PS_CUSTOM: of register_update()
  std::int32_t state = 0;
  float compensation = 0;

  // Refers to `update`.
  hvd_ps_optimizer to_c() const {
    hvd_ps_optimizer optimizer = HVD_PS_OPTIMIZER_INIT;
    optimizer.rule = rule;
    optimizer.row_wise = row_wise ? 1 : 0;
    optimizer.nesterov = nesterov ? 1 : 0;
    optimizer.learning_rate = learning_rate;
    optimizer.momentum = momentum;
    optimizer.weight_decay = weight_decay;
    optimizer.beta1 = beta1;
    optimizer.beta2 = beta2;
    optimizer.epsilon = epsilon;
    optimizer.accumulator = accumulator;
    optimizer.beta = beta;
    optimizer.l1 = l1;
    optimizer.l2 = l2;
    if (!update.empty()) optimizer.update = update.c_str();
    optimizer.state = state;
    optimizer.compensation = compensation;
    return optimizer;
  }
};

// As hvd_ps_table.
struct TableOptions {
  std::string name;
  bool dense = false;
  hvd_ps_consistency consistency = HVD_PS_ASYNCHRONOUS;
  std::int64_t rows = 0;
  std::int32_t width = 1;
  std::int32_t bound = 0;
  bool average = false;
  OptimizerOptions optimizer{};
  hvd_ps_initializer initializer = HVD_PS_CONSTANT;
  float a = 0, b = 0;
  bool filled = false;
  std::uint64_t seed = 0;
  std::int32_t max_age = 0;
  std::int32_t cache = 0;
};

// A pull or push in progress. Movable; used by one thread at a time. The destructor waits.
class [[nodiscard]] Call {
 public:
  explicit Call(hvd_ps_work* work) : work_(work) {}
  Call(Call&& other) noexcept : work_(std::exchange(other.work_, nullptr)) {}
  Call& operator=(Call&& other) noexcept {
    Call moved(std::move(other));  // which leaves `other` empty, and waits for the call that was here
    std::swap(work_, moved.work_);
    return *this;
  }
  ~Call() {
    if (work_ == nullptr) return;
    hvd_ps_work_wait(work_, -1);
    hvd_ps_work_free(work_);
  }

  bool ready() const { return hvd_ps_work_poll(work_) != 0; }
  // Throws the call's error.
  void wait() const { detail::check(hvd_ps_work_wait(work_, -1)); }
  // Returns, once the call is done, how many updates the table had received, on the server with the fewest.
  std::uint64_t version() const { return hvd_ps_work_version(work_); }

 private:
  hvd_ps_work* work_;
};

// An open table. Refers to its Servers, which must outlive it; once these are closed, its functions throw
// InvalidArgument. A call without keys applies to a whole dense table.
class Table {
 public:
  // `servers`: where the connection is, or null once it is closed.
  Table(hvd_ps* const* servers, std::int32_t number, std::int32_t width)
      : ps_(servers), number_(number), width_(width) {}

  using Keys = std::span<const std::uint64_t>;

  void pull(Keys keys, std::span<float> rows) const {
    require(keys, rows.size());
    detail::check(hvd_ps_pull(*ps_, number_, address_of(keys), keys.size(), rows.data(), nullptr));
  }
  void push(Keys keys, std::span<const float> gradients) const {
    require(keys, gradients.size());
    detail::check(hvd_ps_push(*ps_, number_, address_of(keys), keys.size(), gradients.data(), nullptr));
  }
  void push_pull(Keys keys, std::span<const float> gradients, std::span<float> rows) const {
    require(keys, gradients.size());
    require(keys, rows.size());
    detail::check(
        hvd_ps_push_pull(*ps_, number_, address_of(keys), keys.size(), gradients.data(), rows.data(), nullptr));
  }
  Call pull_async(Keys keys, std::span<float> rows) const {
    require(keys, rows.size());
    hvd_ps_work* work = nullptr;
    detail::check(hvd_ps_pull(*ps_, number_, address_of(keys), keys.size(), rows.data(), &work));
    return Call(work);
  }
  Call push_async(Keys keys, std::span<const float> gradients) const {
    require(keys, gradients.size());
    hvd_ps_work* work = nullptr;
    detail::check(hvd_ps_push(*ps_, number_, address_of(keys), keys.size(), gradients.data(), &work));
    return Call(work);
  }

  void fill(std::span<const float> values) const {
    detail::check(hvd_ps_fill(*ps_, number_, values.data(), values.size(), nullptr));
  }
  void pull(std::span<float> values) const {
    detail::check(hvd_ps_pull(*ps_, number_, nullptr, values.size(), values.data(), nullptr));
  }
  void push(std::span<const float> gradients) const {
    detail::check(hvd_ps_push(*ps_, number_, nullptr, gradients.size(), gradients.data(), nullptr));
  }

  // Rows that pulls have found in this worker's cache.
  std::uint64_t cached() const {
    std::uint64_t found = 0, missing = 0;
    detail::check(hvd_ps_cache_counts(*ps_, number_, &found, &missing));
    return found;
  }

  void set_learning_rate(float rate) const { detail::check(hvd_ps_set_learning_rate(*ps_, number_, rate, nullptr)); }

 private:
  // Never null, which would mean the whole table.
  static const std::uint64_t* address_of(Keys keys) {
    static constexpr std::uint64_t kNone = 0;
    return keys.empty() ? &kNone : keys.data();
  }

  void require(Keys keys, std::size_t values) const {
    if (values == keys.size() * static_cast<std::size_t>(width_)) return;
    throw InvalidArgument(std::to_string(values) + " values for " + std::to_string(keys.size()) + " rows of " +
                          std::to_string(width_));
  }

  hvd_ps* const* ps_;
  std::int32_t number_;
  std::int32_t width_;
};

// This worker's connections with all servers of its job. A worker that has finished calls close(). The destructor does
// not notify the servers, which then treat this worker as lost, as after an error.
class Servers {
 public:
  Servers() { detail::check(hvd_ps_connect(ps_.get())); }

  Table open(const TableOptions& o) const {
    hvd_ps_table table = HVD_PS_TABLE_INIT;
    table.name = o.name.c_str();
    table.dense = o.dense ? 1 : 0;
    table.consistency = o.consistency;
    table.rows = o.rows;
    table.width = o.width;
    table.bound = o.bound;
    table.average = o.average ? 1 : 0;
    table.initializer = o.initializer;
    table.a = o.a;
    table.b = o.b;
    table.filled = o.filled ? 1 : 0;
    table.seed = o.seed;
    table.max_age = o.max_age;
    table.cache = o.cache;
    const hvd_ps_optimizer optimizer = o.optimizer.to_c();
    table.optimizer = &optimizer;
    std::int32_t number = 0;
    detail::check(hvd_ps_open(connection(), &table, &number));
    return {ps_.get(), number, o.width};
  }

  void clock() const { detail::check(hvd_ps_clock(connection())); }
  // Waits for all calls of this worker.
  void flush() const { detail::check(hvd_ps_flush(connection(), -1)); }
  void snapshot(const std::string& folder) const {
    detail::check(hvd_ps_snapshot(connection(), folder.c_str(), nullptr));
  }
  void restore(const std::string& folder) const {
    detail::check(hvd_ps_restore(connection(), folder.c_str(), nullptr));
  }
  // Lines "<server> <table> <what> <number>".
  std::string stats() const {
    hvd_ps_work* work = nullptr;
    detail::check(hvd_ps_stats(connection(), &work));
    const std::unique_ptr<hvd_ps_work, void (*)(hvd_ps_work*)> own(work, hvd_ps_work_free);
    detail::check(hvd_ps_work_wait(work, -1));
    return hvd_ps_work_stats(work);
  }
  void close() { detail::check(hvd_ps_close(ps_ ? std::exchange(*ps_, nullptr) : nullptr)); }

 private:
  struct Abandon {
    void operator()(hvd_ps** ps) const {
      hvd_ps_abandon(*ps);
      delete ps;
    }
  };

  // Null once it is closed, or after a move from this object.
  hvd_ps* connection() const { return ps_ ? *ps_ : nullptr; }

  // Tables refer to this pointer, which stays where it is when this object is moved.
  std::unique_ptr<hvd_ps*, Abandon> ps_{new hvd_ps*(nullptr)};
};

}  // namespace ps
}  // namespace v1
}  // namespace hvd
