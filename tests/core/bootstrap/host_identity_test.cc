#include "core/bootstrap/host_identity.h"

#include <unistd.h>

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("a process's own identity") {
  const RankIdentity found = identify_this_process("", "");
  CHECK(found.pid == getpid());
  CHECK_FALSE(found.hostname.empty());
  CHECK_FALSE(found.cpus.empty());
  CHECK(found.host_key == identify_this_process("", "").host_key);
  CHECK(found.host_key.find("uid:" + std::to_string(geteuid())) != std::string::npos);
}

TEST_CASE("what is given replaces what is found") {
  const RankIdentity given = identify_this_process("rack 1", "node-a");
  CHECK(given.host_key == "rack 1");
  CHECK(given.hostname == "node-a");
  // Another name in messages does not separate ranks that can share memory.
  CHECK(identify_this_process("", "node-a").host_key == identify_this_process("", "").host_key);
}
