// This process in MPI: initialised by this plugin, or earlier by other code such as mpi4py, which then also finalises
// it at exit.
//
// hvd can be initialised several times, MPI only once: a process that has joined MPI stays in it.
#pragma once

#include <stdexcept>
#include <string>

#include "hvd_plugin.h"

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

// "Open MPI v4.1.4": the first line of the library's version text. Needs no initialisation.
std::string library_version();

// Initialises MPI unless it is initialised. Throws Failure: MPI was already finalised, or cannot be initialised.
void join();

// The level of thread support of MPI: MPI_THREAD_SINGLE and so on. After join().
int thread_level();

// Registers a function that is called before MPI is finalised, by any code, to free MPI objects.
void at_finalize(void (*give_back)());

// Called after an error in the middle of communication: prevents MPI_Finalize at exit, which might block forever. The
// launcher detects a process that exits without it.
void skip_finalize();

// Marks a call of MPI, which may never return: MPI is not finalised at exit while such an object exists.
class InMpi {
 public:
  InMpi();
  ~InMpi();
  InMpi(const InMpi&) = delete;
  InMpi& operator=(const InMpi&) = delete;
};

}  // namespace hvd::mpi
