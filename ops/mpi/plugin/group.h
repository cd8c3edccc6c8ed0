// This process in MPI, and the MPI communicator of a group's ranks with their collectives: MPI's, on a single tensor or
// a packed buffer.
//
// MPI adds in an arbitrary order. A result is the same on every rank, but its last bits may depend on which tensors are
// reduced together, and 16-bit floats are rounded after each addition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/tensor/collective.h"
#include "core/tensor/dtype.h"
#include "hvd_plugin.h"
#include "ops/algorithms/packing.h"
#include "ops/mpi/plugin/mpi_declarations.h"

namespace hvd::mpi {

// ---- This process in MPI: initialised by this plugin or earlier by other code (mpi4py), which also finalises it at
// exit.
//
// MPI cannot be initialised twice, while hvd can: once joined, a process stays in MPI.

class Failure : public std::runtime_error {
 public:
  Failure(hvd_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  hvd_status status() const { return status_; }

 private:
  hvd_status status_;
};

// Throws Failure with MPI's text unless `code` is MPI_SUCCESS.
void check(int code, const char* what);

// "Open MPI v4.1.4": the first line of the library's version text. Needs no initialisation.
std::string library_version();

// Initialises MPI unless it is initialised. Throws Failure: MPI was already finalised, or cannot be initialised.
void join();

// The level of thread support of MPI: MPI_THREAD_SINGLE and so on. After join().
int thread_level();

// Registers a function that is called before MPI is finalised, by any code, to free MPI objects.
void at_finalize(void (*give_back)());

// Prevents MPI_Finalize at exit, which might block forever; the launcher detects that. Called after an error in the
// middle of communication.
void give_up();

// Marks a call of MPI, which may never return: MPI is not finalised at exit while such an object exists.
class InMpi {
 public:
  InMpi();
  ~InMpi();
  InMpi(const InMpi&) = delete;
  InMpi& operator=(const InMpi&) = delete;
};

// ---- A group's ranks

class Group {
 public:
  // All ranks of the group call together. Throws Failure.
  Group(const hvd_plugin_host& host, const hvd_plugin_group& group);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Whether MPI's collectives support this call.
  static bool can_do(const hvd_plugin_call& call);
  void run(const hvd_plugin_call& call);

  MPI_Comm comm() const { return comm_; }
  // The largest tag of a message.
  int highest_tag() const { return highest_tag_; }
  // Does not free the communicator in the destructor: messages are still pending.
  void leave_open() { left_open_ = true; }

 private:
  struct Values;  // the call's arguments in C++

  void allreduce(const Values& values);
  void allgather(const Values& values);
  void broadcast(const Values& values);
  void alltoall(const Values& values);
  void reducescatter(const Values& values);

  const int rank_;
  const int size_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int highest_tag_ = 0;
  bool left_open_ = false;
  Scratch scratch_;
};

}  // namespace hvd::mpi
