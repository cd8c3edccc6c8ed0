// The socket at which a running job answers questions of other processes (`hvd stacks`, `hvd top`): a Unix socket in
// the abstract namespace, "@hvd-job-UID-PID" of hvdrun, so that no file is left behind. Main thread only; never blocks.
//
// Accepts connections of the same user and of root. Each connection carries one question, a line; the answer is text up
// to the end of the connection. There are at most eight connections, of at most ten seconds each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/net/socket.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

class StatusSocket {
 public:
  using Answer = std::function<void(std::string text)>;
  // Must call `answer` once, during the call or later, as long as the StatusSocket exists.
  using Ask = std::function<void(const std::string& question, Answer answer)>;

  // Throws Internal if the socket cannot be created.
  StatusSocket(EventLoop& loop, Ask ask);
  ~StatusSocket();
  StatusSocket(const StatusSocket&) = delete;
  StatusSocket& operator=(const StatusSocket&) = delete;

 private:
  struct Connection {
    FileDescriptor socket;
    std::string question, answer;
    std::size_t written = 0;
    bool has_asked = false;
    std::unique_ptr<Timer> timer;
  };

  void open_door();
  void accept_one();
  void on_event(std::uint64_t number);
  void read_question(std::uint64_t number);
  void write_answer(std::uint64_t number);
  void end(std::uint64_t number);

  EventLoop& loop_;
  const Ask ask_;
  FileDescriptor door_;
  Timer closed_{loop_, [this] { open_door(); }};  // set while no descriptor is free for a new connection
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t last_number_ = 0;
};

// "hvd-job-0-4711", with '@' for the abstract namespace's zero byte.
std::string status_socket_name(unsigned uid, int pid);

}  // namespace hvd::launcher
