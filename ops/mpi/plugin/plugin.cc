// MPI as a plugin (hvd_plugin.h). The sources of this folder are compiled once for each binary interface of MPI,
// against independent declarations (mpi_declarations.h), and linked with no MPI: the one that the process has, or would
// load, is opened before them (ops/mpi/mpi_library.h).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "hvd_plugin.h"
#include "ops/mpi/plugin/communicator.h"
#include "ops/mpi/plugin/mpi_declarations.h"
#include "ops/mpi/plugin/process.h"

namespace hvd::mpi {

namespace {

// Messages for hvd_plugin_transport: MPI's non-blocking sends and receives. The label is sent as MPI's tag, modulo the
// range of tags; a receive takes the next message from its peer, and compares the tags. Messages longer than an int can
// represent are sent in several parts, in order.
struct Message {
  // Part i is requests[i].
  std::vector<MPI_Request> requests;
  std::vector<int> lengths;
  int tag = 0;
  bool received = false;
};

constexpr std::size_t kPart = std::size_t{1} << 30;

// Calls post(offset, length of the part, tag, request to set). A message without bytes also has a part.
template <typename Post>
Message* in_parts(const Communicator& communicator, std::uint64_t label, std::size_t size, bool received,
                  const Post& post) {
  auto message = std::make_unique<Message>();
  message->tag = static_cast<int>(label % (static_cast<std::uint64_t>(communicator.highest_tag()) + 1));
  message->received = received;
  std::size_t at = 0;
  do {
    const std::size_t length = std::min(kPart, size - at);
    message->lengths.push_back(static_cast<int>(length));
    check(post(at, static_cast<int>(length), message->tag, &message->requests.emplace_back(MPI_REQUEST_NULL)),
          "posting a message");
    at += length;
  } while (at < size);
  return message.release();
}

void check_part(const Message& message, std::size_t part, MPI_Status& status) {
  int length = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &length), "asking for a message's length");
  if (status.MPI_TAG == message.tag && length == message.lengths[part]) return;
  throw Failure(HVD_INTERNAL, "ranks are out of step: a message of " + std::to_string(length) + " bytes with label " +
                                  std::to_string(status.MPI_TAG) + " came where one of " +
                                  std::to_string(message.lengths[part]) + " with label " + std::to_string(message.tag) +
                                  " was expected");
}

// The memory belongs to MPI until test() has returned true or thrown.
Message* post_send(const Communicator& communicator, int peer, std::uint64_t label, const void* bytes,
                   std::size_t size) {
  return in_parts(communicator, label, size, false, [&](std::size_t at, int length, int tag, MPI_Request* request) {
    return MPI_Isend(static_cast<const std::byte*>(bytes) + at, length, MPI_BYTE, peer, tag, communicator.comm(),
                     request);
  });
}

Message* post_receive(const Communicator& communicator, int peer, std::uint64_t label, void* bytes, std::size_t size) {
  return in_parts(communicator, label, size, true, [&](std::size_t at, int length, int /*tag*/, MPI_Request* request) {
    return MPI_Irecv(static_cast<std::byte*>(bytes) + at, length, MPI_BYTE, peer, MPI_ANY_TAG, communicator.comm(),
                     request);
  });
}

// Returns true if the message is complete; it is deleted then, and also if this throws.
bool test(Message* message) {
  for (std::size_t part = 0; part < message->requests.size(); ++part) {
    if (message->requests[part] == MPI_REQUEST_NULL) continue;
    int done = 0;
    MPI_Status status{};
    const int code = MPI_Test(&message->requests[part], &done, &status);
    if (code == MPI_SUCCESS && done == 0) return false;
    // Incomplete parts still belong to MPI: this exception ends the job.
    try {
      check(code, message->received ? "receiving a message" : "sending a message");
      if (message->received) check_part(*message, part, status);
    } catch (...) {
      delete message;
      throw;
    }
  }
  delete message;
  return true;
}

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

Communicator& communicator_of(void* opened) { return *static_cast<Communicator*>(opened); }

// hvd calls MPI from threads that did not initialise it: without MPI_THREAD_SERIALIZED it can only start a job.
void check_threads() {
  if (thread_level() >= MPI_THREAD_SERIALIZED) return;
  throw Failure(
      HVD_UNSUPPORTED,
      "MPI was initialised for calls from one thread only, so that hvd cannot move data with it: initialise it with "
      "MPI_THREAD_MULTIPLE");
}

hvd_status open_group(const hvd_plugin_host* host, const hvd_plugin_group* group, void** opened) {
  return guarded([&] {
    const InMpi counted;
    join();
    check_threads();
    // Groups of some ranks operate concurrently with others.
    int world = 0;
    check(MPI_Comm_size(MPI_COMM_WORLD, &world), "asking for MPI's size");
    if (group->size < world && thread_level() < MPI_THREAD_MULTIPLE) {
      throw Failure(HVD_UNSUPPORTED,
                    "MPI was not initialised with MPI_THREAD_MULTIPLE: it serves only the process set of all ranks");
    }
    *opened = new Communicator(*host, *group);
  });
}

void close_group(void* opened, int failed) {
  Communicator* const communicator = static_cast<Communicator*>(opened);
  if (failed != 0) {
    skip_finalize();
    communicator->leave_open();
  }
  guarded([&] { delete communicator; });
}

hvd_status run(void* opened, const hvd_plugin_call* call) {
  const hvd_status status = guarded([&] {
    const InMpi counted;
    communicator_of(opened).run(*call);
  });
  if (status != HVD_OK) skip_finalize();
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
  return guarded([&] { *operation = post_send(communicator_of(opened), peer, label, bytes, size); });
}

hvd_status receive(void* opened, int32_t peer, uint64_t label, void* bytes, size_t size, void** operation) {
  return guarded([&] { *operation = post_receive(communicator_of(opened), peer, label, bytes, size); });
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
      [](void*, const hvd_plugin_call* call) { return Communicator::can_do(*call) ? kScore : 0; },
      run,
      close_group,
      &launch,
      &transport,
  };
  return &plugin;
}
