// Where a running job can be asked: a Unix socket in the abstract namespace, "@hvd-job-UID-PID" of hvdrun, of which
// nothing stays behind whoever is killed how. Main thread only; nothing here blocks.
//
// Takes connections of the same user and of root. One connection, one question: a line; the answer is a text, up to the
// end of the connection. There are eight connections at most, of ten seconds each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/net/socket.h"
#include "launcher/loop/event_loop.h"

namespace hvd::launcher {

class StatusSocket {
 public:
  using Answer = std::function<void(std::string text)>;
  // `answer` is to be called once, at once or later, as long as the socket is there.
  using Ask = std::function<void(const std::string& question, Answer answer)>;

  // Throws Internal: there is no such socket to be had.
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
  Timer closed_{loop_, [this] { open_door(); }};  // while there is no descriptor for who comes
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t last_number_ = 0;
};

// "hvd-job-0-4711", with '@' for the abstract namespace's zero byte.
std::string status_socket_name(unsigned uid, int pid);

}  // namespace hvd::launcher
