#include "core/base/process_stat.h"

#include <unistd.h>

#include <string>

#include "tests/support/catch.h"

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
