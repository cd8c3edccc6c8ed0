// Tables on parameter servers for Python (hvd_ps.h). All functions require the GIL, and release it while they wait.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "hvd_ps.h"

namespace hvd::python {

class TableWork;

// A worker's connections with all servers.
class ParameterServers : public std::enable_shared_from_this<ParameterServers> {
 public:
  ParameterServers();
  ~ParameterServers();
  ParameterServers(const ParameterServers&) = delete;
  ParameterServers& operator=(const ParameterServers&) = delete;

  // Takes the fields of hvd_ps_table and hvd_ps_optimizer by name.
  int open(const std::string& name, const pybind11::kwargs& fields);

  std::pair<std::uint64_t, std::uint64_t> cache_counts(int table) const;

  enum class Kind { pull, push, push_pull };
  // Starts a call on memory at these addresses (0: NULL). `owners`: any object that keeps that memory alive.
  std::unique_ptr<TableWork> start(Kind kind, int table, std::uintptr_t keys, std::size_t count,
                                   std::uintptr_t gradients, std::uintptr_t rows, pybind11::object owners);

  std::unique_ptr<TableWork> fill(int table, std::uintptr_t values, std::size_t count, pybind11::object owners);
  void clock();
  std::pair<std::uint32_t, std::uint32_t> clocks() const;
  bool flush(std::optional<double> timeout_seconds);
  std::unique_ptr<TableWork> set_learning_rate(int table, float rate);
  std::unique_ptr<TableWork> stats();
  std::unique_ptr<TableWork> snapshot(const std::string& folder);
  std::unique_ptr<TableWork> restore(const std::string& folder);
  std::pair<int, bool> servers() const;
  void close();
  bool is_closed() const { return is_closed_; }

 private:
  friend class TableWork;

  // The connections for the length of one call, whose middle is without the GIL: close() waits until it is over.
  class Use {
   public:
    explicit Use(const ParameterServers& servers) : servers_(servers), ps_(servers.open_ps()) { ++servers_.users_; }
    ~Use() { --servers_.users_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    operator hvd_ps*() const { return ps_; }

   private:
    const ParameterServers& servers_;
    hvd_ps* const ps_;
  };

  hvd_ps* open_ps() const;
  // Calls start(ps, &work) without the GIL.
  template <typename Start>
  std::unique_ptr<TableWork> started(pybind11::object owners, const Start& start);

  hvd_ps* ps_ = nullptr;  // null as soon as close() has begun
  bool is_closed_ = false;
  mutable int users_ = 0;
};

// A call in progress. Dropped before it is done, it keeps the memory until then.
class TableWork {
 public:
  TableWork(std::shared_ptr<ParameterServers> servers, hvd_ps_work* work, pybind11::object owners)
      : servers_(std::move(servers)), work_(work), owners_(std::move(owners)) {}
  ~TableWork();
  TableWork(const TableWork&) = delete;
  TableWork& operator=(const TableWork&) = delete;

  bool poll();
  // False at the timeout. Raises the call's error.
  bool wait(std::optional<double> timeout_seconds);
  std::uint64_t version() const { return hvd_ps_work_version(work_); }
  std::string stats() const { return hvd_ps_work_stats(work_); }

 private:
  void require_open() const;

  std::shared_ptr<ParameterServers> servers_;
  hvd_ps_work* work_;
  pybind11::object owners_;
  bool is_done_ = false;  // somebody has waited for it
};

// Whether this process is one of its job's parameter servers: hvd_get_launch().
bool is_server();
// hvd_ps_register_update(), for ever. The function gets memoryviews of rows, gradients and state, and the learning
// rate.
void register_update(const std::string& name, const pybind11::function& function);
// hvd_ps_serve().
void serve_tables();

void define_tables(pybind11::module_& m);

}  // namespace hvd::python
