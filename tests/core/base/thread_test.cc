#include "core/base/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

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
      _exit(text.starts_with("cannot start thread hvd-test: ") && text.find("`ulimit -v`, 1 bytes") != text.npos ? 0
                                                                                                                 : 2);
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
