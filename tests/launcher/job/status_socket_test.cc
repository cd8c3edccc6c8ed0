#include "launcher/job/status_socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

FileDescriptor connect_to(const std::string& name) {
  FileDescriptor result(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin() + 1, name.end(), address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  REQUIRE(connect(result.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  return result;
}

class Asked {
 public:
  // What comes until the connection ends; `loop` runs meanwhile.
  std::string read_all(const FileDescriptor& connection) {
    std::string text;
    const Deadline deadline = deadline_after(30s);
    while (Clock::now() < deadline) {
      loop.run_once(deadline_after(1ms));
      char bytes[4096];
      ssize_t count = 0;
      while ((count = read(connection.get(), bytes, sizeof bytes)) > 0)
        text.append(bytes, static_cast<std::size_t>(count));
      if (count == 0 || errno == ECONNRESET) return text;
    }
    FAIL("the connection stays open");
    return text;
  }
  void say(const FileDescriptor& connection, const std::string& text) {
    static_cast<void>(send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  FileDescriptor come() {
    FileDescriptor connection = connect_to(status_socket_name(geteuid(), getpid()));
    loop.run_once(deadline_after(1s));
    return connection;
  }

  EventLoop loop;
  std::vector<std::string> questions;
  std::vector<StatusSocket::Answer> waiting;
  StatusSocket socket{loop, [this](const std::string& question, StatusSocket::Answer answer) {
                        questions.push_back(question);
                        if (question == "later") {
                          waiting.push_back(std::move(answer));
                        } else {
                          answer(question + "!");
                        }
                      }};
};

TEST_CASE("a line is a question, and its answer ends the connection") {
  Asked job;
  const FileDescriptor connection = job.come();
  job.say(connection, "stac");
  job.loop.run_once(deadline_after(10ms));
  job.say(connection, "ks\nand more");
  CHECK(job.read_all(connection) == "stacks!");
  CHECK(job.questions == std::vector<std::string>{"stacks"});
}

TEST_CASE("an answer may come late, be long, or find nobody") {
  Asked job;
  const FileDescriptor connection = job.come();
  {
    const FileDescriptor leaves = job.come();
    job.say(leaves, "later\n");
    job.loop.run_once(deadline_after(1s));
  }
  job.say(connection, "later\n");
  while (job.waiting.size() < 2) job.loop.run_once(deadline_after(1s));
  const std::string text(3'000'000, 'x');
  for (const auto& answer : job.waiting) answer(text);
  CHECK(job.read_all(connection) == text);
}

TEST_CASE("who comes while there is no descriptor waits at the door, and does not keep the loop awake") {
  Asked job;
  const FileDescriptor connection = connect_to(status_socket_name(geteuid(), getpid()));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  int rounds = 0;
  for (const Deadline end = deadline_after(200ms); Clock::now() < end; ++rounds) job.loop.run_once(end);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(rounds < 10);
  job.say(connection, "stacks\n");
  CHECK(job.read_all(connection) == "stacks!");
}

TEST_CASE("an endless question and the ninth connection are refused") {
  Asked job;
  const FileDescriptor talks = job.come();
  job.say(talks, std::string(200, 'x'));
  CHECK(job.read_all(talks).empty());
  std::vector<FileDescriptor> connections;
  for (int i = 0; i < 9; ++i) connections.push_back(job.come());
  CHECK(job.read_all(connections.back()).empty());
  job.say(connections.front(), "x\n");
  CHECK(job.read_all(connections.front()) == "x!");
}

}  // namespace
}  // namespace hvd::launcher
