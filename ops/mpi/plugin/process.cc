#include "ops/mpi/plugin/process.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "core/base/mutex.h"
#include "ops/mpi/plugin/mpi_declarations.h"

namespace hvd::mpi {

namespace {

std::atomic<bool> finalize_skipped{false};
std::atomic<int> calls_under_way{0};
pid_t initialised_in = 0;  // a forked child is not in MPI

// MPI_Finalize waits for the other processes. A process that fails exits without it: the others may not reach it before
// this process has ended.
void finalize_at_exit(int status, void*) {
  int finalized = 0;
  if (status != 0 || finalize_skipped || calls_under_way > 0 || getpid() != initialised_in ||
      MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
    return;
  MPI_Finalize();
}

bool is(int (*ask)(int*)) {
  int answer = 0;
  check(ask(&answer), ask == MPI_Finalized ? "MPI_Finalized" : "MPI_Initialized");
  return answer != 0;
}

}  // namespace

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  const bool known = MPI_Error_string(code, text.data(), &length) == MPI_SUCCESS;
  throw Failure(HVD_INTERNAL, std::string(what) + ": " + (known ? text.data() : "unknown error of MPI"));
}

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "MPI";
  const std::string all(text.data());
  std::string first = all.substr(0, all.find_first_of(",\n"));
  for (char& c : first) {
    if (c == '\t') c = ' ';
  }
  return first;
}

void join() {
  static Mutex mutex;
  const MutexLock lock(mutex);
  if (is(MPI_Finalized)) throw Failure(HVD_UNSUPPORTED, "MPI has been finalized in this process");
  if (is(MPI_Initialized)) return;
  int level = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "initialising MPI");
  initialised_in = getpid();
  on_exit(finalize_at_exit, nullptr);
}

int thread_level() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "asking for MPI's thread level");
  return level;
}

// MPI_Finalize first deletes what is attached to MPI_COMM_SELF (MPI 4.0, section 11.2.4).
void at_finalize(void (*give_back)()) {
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(
            [](MPI_Comm, int, void*, void*, void*, int* is_copied) {
              *is_copied = 0;
              return MPI_SUCCESS;
            },
            [](MPI_Comm, int, void* attached, void*) {
              reinterpret_cast<void (*)()>(attached)();
              return MPI_SUCCESS;
            },
            &key, nullptr),
        "registering a finalize callback");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, reinterpret_cast<void*>(give_back)), "registering a finalize callback");
  MPI_Comm_free_keyval(&key);
}

void skip_finalize() { finalize_skipped = true; }

InMpi::InMpi() { ++calls_under_way; }
InMpi::~InMpi() { --calls_under_way; }

}  // namespace hvd::mpi
