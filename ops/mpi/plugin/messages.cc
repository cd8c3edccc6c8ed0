#include "ops/mpi/plugin/messages.h"

#include <algorithm>
#include <memory>
#include <string>

#include "ops/mpi/plugin/group.h"
#include "ops/mpi/plugin/session.h"

namespace hvd::mpi {

namespace {

constexpr std::size_t kPart = std::size_t{1} << 30;

// Calls post(offset, length of the part, tag, request to set). A message without bytes also has a part.
template <typename Post>
Message* in_parts(const Group& group, std::uint64_t label, std::size_t size, bool received, const Post& post) {
  auto message = std::make_unique<Message>();
  message->tag = static_cast<int>(label % (static_cast<std::uint64_t>(group.highest_tag()) + 1));
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

}  // namespace

Message* post_send(const Group& group, int peer, std::uint64_t label, const void* bytes, std::size_t size) {
  return in_parts(group, label, size, false, [&](std::size_t at, int length, int tag, MPI_Request* request) {
    return MPI_Isend(static_cast<const std::byte*>(bytes) + at, length, MPI_BYTE, peer, tag, group.comm(), request);
  });
}

Message* post_receive(const Group& group, int peer, std::uint64_t label, void* bytes, std::size_t size) {
  return in_parts(group, label, size, true, [&](std::size_t at, int length, int /*tag*/, MPI_Request* request) {
    return MPI_Irecv(static_cast<std::byte*>(bytes) + at, length, MPI_BYTE, peer, MPI_ANY_TAG, group.comm(), request);
  });
}

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

}  // namespace hvd::mpi
