// This process in MPI: initialised by us or by somebody before us (mpi4py), and finalised, at exit, by whoever has
// initialised it.
//
// MPI cannot be initialised twice, while hvd can: once joined, a process stays in MPI.
#pragma once

#include <stdexcept>
#include <string>

#include "hvd_plugin.h"
#include "ops/mpi/plugin/mpi_declarations.h"

namespace hvd::mpi {

class Failure : public std::runtime_error {
 public:
  Failure(hvd_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  hvd_status status() const { return status_; }

 private:
  hvd_status status_;
};

// Throws Failure with MPI's text unless `code` is MPI_SUCCESS.
void check(int code, const char* what);

// "Open MPI v4.1.4": the first line of what the library says of itself. Needs no initialisation.
std::string library_version();

// Initialises MPI if nobody has. Throws Failure: MPI is over already, or cannot be initialised.
void join();

// What MPI allows threads to do: MPI_THREAD_SINGLE and so on. After join().
int thread_level();

// Has it called before MPI is finalised, by whomever: what was made in MPI is to be given back then.
void at_finalize(void (*give_back)());

// At exit MPI is not finalised, which might wait for ever, and the launcher sees that: something went wrong in the
// middle of communication, or
void give_up();

// a thread is still in one of MPI's calls, and may be for ever. Is counted as such while this exists.
class InMpi {
 public:
  InMpi();
  ~InMpi();
  InMpi(const InMpi&) = delete;
  InMpi& operator=(const InMpi&) = delete;
};

}  // namespace hvd::mpi
