#include "core/base/process.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

using namespace hvd;

namespace hvd {

TEST_CASE("a thread has its name, or as much of it as is shown") {
  std::string name;
  start_thread("hvd-a-very-long-name", [&] {
    char text[16] = "";
    pthread_getname_np(pthread_self(), text, sizeof text);
    name = text;
  }).join();
  CHECK(name == "hvd-a-very-long");
}

#ifndef HVD_SANITIZED  // which need address space
TEST_CASE("a thread that cannot be had is an error with its name and the limit") {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{.rlim_cur = 1, .rlim_max = 1};
    setrlimit(RLIMIT_AS, &none);
    try {
      for (int i = 0; i < 100; ++i) start_thread("hvd-test", [] { pause(); }).detach();  // the first on stacks kept
    } catch (const Internal& error) {
      const std::string text = error.what();
      const bool is_named = text.starts_with("cannot start thread hvd-test: ");
      _exit(is_named && text.find("1 bytes of address space: ulimit -v") != text.npos ? 0 : 2);
    } catch (...) {
      _exit(3);
    }
    _exit(1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
#endif

}  // namespace hvd

namespace hvd {
namespace {

TEST_CASE("a process's line in /proc is read, whatever it is called") {
  CHECK(parse_process_stat("12 (sh) S 1 12 5 0 -1") == ProcessEntry{12, 1, 12, false});
  CHECK(parse_process_stat("12 (a) b) (c) R 7 9 5 0") == ProcessEntry{12, 7, 9, false});
  CHECK(parse_process_stat("12 (defunct) Z 7 9 5 0") == ProcessEntry{12, 7, 9, true});
  const std::string zombie = "12 (defunct) Z 7 9 5 0 -1 0 0 0 0 0 1 2 3 4 20 0 ";
  CHECK(parse_process_stat(zombie + "1 0 77") == ProcessEntry{12, 7, 9, true});
  CHECK(parse_process_stat(zombie + "2 0 77") == ProcessEntry{12, 7, 9, false});
  for (const char* text : {"", "x (sh) S 1 2 3", "12 sh S 1 2 3", "12 (sh)", "12 (sh) S", "12 (sh) S x 2"}) {
    CHECK_FALSE(parse_process_stat(text).has_value());
  }
}

TEST_CASE("this process's own line, and none of a process that is not there") {
  CHECK(read_process_stat(getpid()) == ProcessEntry{getpid(), getppid(), getpgrp(), false});
  CHECK_FALSE(read_process_stat(-1).has_value());
}

}  // namespace
}  // namespace hvd

TEST_CASE("this process may run on the CPU on which it runs") {
  const auto cpu = static_cast<std::size_t>(sched_getcpu());
  const std::vector<std::uint64_t> words = allowed_cpus();
  REQUIRE(words.size() > cpu / 64);
  CHECK((words[cpu / 64] >> (cpu % 64) & 1) == 1);
  CHECK(words.back() != 0);
}

TEST_CASE("lists of CPUs are read as the kernel writes them") {
  using Numbers = std::vector<int>;
  CHECK(parse_cpu_numbers("0-3,8") == Numbers{0, 1, 2, 3, 8});
  CHECK(parse_cpu_numbers("5") == Numbers{5});
  for (const char* text : {"", "x", "0-", "1,,2", "99999999999", "-1", "0-99999999"})
    CHECK(parse_cpu_numbers(text).empty());
}
