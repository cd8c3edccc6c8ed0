// MPI as a plugin (hvd_plugin.h). The sources of this folder are compiled once for each binary interface of MPI,
// against independent declarations (mpi_declarations.h), and linked with no MPI: the one that the process has, or would
// load, is opened before them (ops/mpi/mpi_library.h).
#include <exception>
#include <string>

#include "hvd_plugin.h"
#include "ops/mpi/plugin/group.h"
#include "ops/mpi/plugin/messages.h"
#include "ops/mpi/plugin/mpi_declarations.h"
#include "ops/mpi/plugin/session.h"

namespace hvd::mpi {

namespace {

// MPI's own collectives serve CPU tensors if HVD_CPU_BACKEND requires it, in which case hvd opens them as a backend.
constexpr std::int32_t kScore = 200;

std::string& last_text() {
  thread_local std::string text;
  return text;
}

// Runs `work`, and converts exceptions to a status.
template <typename Work>
hvd_status guarded(const Work& work) {
  try {
    work();
    return HVD_OK;
  } catch (const Failure& failure) {
    last_text() = failure.what();
    return failure.status();
  } catch (const std::exception& error) {
    last_text() = error.what();
    return HVD_INTERNAL;
  }
}

Group& group_of(void* opened) { return *static_cast<Group*>(opened); }

// hvd calls MPI from threads that did not initialise it: without MPI_THREAD_SERIALIZED it can only start a job.
void check_threads() {
  if (thread_level() >= MPI_THREAD_SERIALIZED) return;
  throw Failure(
      HVD_UNSUPPORTED,
      "MPI allows calls from one thread only (initialise it with MPI_THREAD_MULTIPLE), so that it moves no data");
}

hvd_status open_group(const hvd_plugin_host* host, const hvd_plugin_group* group, void** opened) {
  return guarded([&] {
    join();
    check_threads();
    // Groups of some ranks operate concurrently with others.
    int world = 0;
    check(MPI_Comm_size(MPI_COMM_WORLD, &world), "asking for MPI's size");
    if (group->size < world && thread_level() < MPI_THREAD_MULTIPLE) {
      throw Failure(HVD_UNSUPPORTED,
                    "MPI does not allow several threads (MPI_THREAD_MULTIPLE): it serves all ranks only");
    }
    *opened = new Group(*host, *group);
  });
}

void close_group(void* opened, int failed) {
  Group* const group = static_cast<Group*>(opened);
  if (failed != 0) {
    give_up();
    group->leave_open();
  }
  guarded([&] { delete group; });
}

hvd_status run(void* opened, const hvd_plugin_call* call) {
  const hvd_status status = guarded([&] {
    const InMpi counted;
    group_of(opened).run(*call);
  });
  if (status != HVD_OK) give_up();
  return status;
}

hvd_status join_job(int32_t* rank, int32_t* size) {
  return guarded([&] {
    join();
    check(MPI_Comm_rank(MPI_COMM_WORLD, rank), "asking for this process's rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, size), "asking for MPI's size");
  });
}

hvd_status broadcast(void* bytes, size_t size) {
  return guarded([&] { check(MPI_Bcast(bytes, static_cast<int>(size), MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast"); });
}

hvd_status send(void* opened, int32_t peer, uint64_t label, const void* bytes, size_t size, void** operation) {
  return guarded([&] { *operation = post_send(group_of(opened), peer, label, bytes, size); });
}

hvd_status receive(void* opened, int32_t peer, uint64_t label, void* bytes, size_t size, void** operation) {
  return guarded([&] { *operation = post_receive(group_of(opened), peer, label, bytes, size); });
}

hvd_status test_message(void* /*opened*/, void* operation, int* done) {
  return guarded([&] { *done = test(static_cast<Message*>(operation)) ? 1 : 0; });
}

// Checks the library only: no job can be created to test it.
hvd_status self_test() {
  return guarded([] {
    int version = 0, subversion = 0;
    check(MPI_Get_version(&version, &subversion), "asking for MPI's version");
    if (version < 3) throw Failure(HVD_UNSUPPORTED, "this MPI is older than version 3 of the standard");
  });
}

}  // namespace

}  // namespace hvd::mpi

extern "C" HVD_API const hvd_plugin* hvd_plugin_get(uint32_t abi_version) {
  using namespace hvd::mpi;
  if (abi_version != HVD_PLUGIN_ABI_VERSION) return nullptr;
  static const std::string description = library_version();
  static const hvd_plugin_launch launch = {sizeof launch, join_job, broadcast};
  static const hvd_plugin_transport transport = {sizeof transport, send, receive, test_message};
  static const hvd_plugin plugin = {
      sizeof plugin,
      HVD_PLUGIN_ABI_VERSION,
      "mpi",
      description.c_str(),
      [] { return last_text().c_str(); },
      self_test,
      open_group,
      [](void*, const hvd_plugin_call* call) { return Group::can_do(*call) ? kScore : 0; },
      run,
      close_group,
      &launch,
      &transport,
  };
  return &plugin;
}
