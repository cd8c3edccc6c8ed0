#include "launcher/plan/hosts.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("host lists are read") {
  CHECK(parse_hosts("localhost:4") == std::vector<HostSlots>{{"localhost", 4}});
  CHECK(parse_hosts("localhost") == std::vector<HostSlots>{{"localhost", 1}});
  CHECK(parse_hosts("a:2,b,c:3") == std::vector<HostSlots>{{"a", 2}, {"b", 1}, {"c", 3}});
  CHECK(parse_hosts("a,b:2,a,a:3") == std::vector<HostSlots>{{"a", 5}, {"b", 2}});
  CHECK(parse_hosts("me@10.0.0.1:2,other@b") ==
        std::vector<HostSlots>{{"10.0.0.1", 2, {}, "me"}, {"b", 1, {}, "other"}});
  for (const char* text : {"",     ":4",    "a:",   "a:0",          "a:-1",       "a:x", "a:4x",  "a:4,",
                           ",a",   "a:1:2", "a: 4", "a:9999999999", "@a",         "me@", "me@:4", "-oProxyCommand=x",
                           "-l@a", "me@-x", "a b",  "me@a,you@a",   "a:1000000,a"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_hosts(text), InvalidArgument);
  }
}

TEST_CASE("hostfiles of Open MPI, Horovod and MPICH are read") {
  struct Row {
    const char* text;
    std::vector<HostSlots> hosts;
  };
  for (const Row& row :
       {Row{"localhost slots=4\n", {{"localhost", 4}}},
        Row{"# nodes\n\n a slots=2 max_slots=4 # two\r\nb:3\n\tc", {{"a", 2, 4}, {"b", 3}, {"c"}}},
        Row{"a max-slots=8 slots=8\r\n\r\n", {{"a", 8, 8}}}, Row{"a\nb\na\nb slots=2\n", {{"a", 2}, {"b", 3}}},
        Row{"me@a slots=2", {{"a", 2, {}, "me"}}}}) {
    CAPTURE(row.text);
    CHECK(parse_hostfile(row.text) == row.hosts);
  }
}

TEST_CASE("what a hostfile says wrongly is told with its line") {
  struct Row {
    const char* text;
    const char* in_message;
  };
  for (const Row& row :
       {Row{"", "names no host"}, Row{"# none\n", "names no host"}, Row{"a\nb slots=x\n", "line 2 of the hostfile"},
        Row{"a slots=0", "line 1 of the hostfile"}, Row{"a slots 4", "\"slots\" is not understood"},
        Row{"a sockets=4", "\"sockets=4\" is not understood"}, Row{"a:0", "line 1"}, Row{"a max_slots=x", "line 1"},
        Row{"a slots=4 max_slots=2", "more slots than max_slots"},
        Row{"\n-x slots=4", "line 2 of the hostfile: \"-x\" is not a host's name"}}) {
    CHECK_THROWS_WITH(parse_hostfile(row.text), Catch::Matchers::Contains(row.in_message));
  }
  CHECK_THROWS_WITH(parse_hostfile("", "/etc/mpi/hostfile"), "/etc/mpi/hostfile names no host");
}

TEST_CASE("a host is this machine by its name or by an address") {
  const LocalNames own{.hostname = "node7.cluster", .addresses = {"127.0.0.1", "10.0.0.7", "fe80::7"}};
  for (const char* name :
       {"localhost", "127.0.0.1", "127.0.1.1", "::1", "node7", "node7.cluster", "10.0.0.7", "fe80::7"}) {
    CAPTURE(name);
    CHECK(is_this_host(name, own));
  }
  for (const char* name : {"node8", "node", "node7.elsewhere", "10.0.0.8", ""}) {
    CAPTURE(name);
    CHECK_FALSE(is_this_host(name, own));
  }
  CHECK(is_this_host("login", own, {"192.168.0.1", "10.0.0.7"}));
  CHECK(is_this_host("login", own, {"127.0.1.1"}));
  CHECK_FALSE(is_this_host("login", own, {"10.0.0.8"}));
}

TEST_CASE("several names of this machine become one host") {
  const auto hosts = parse_hosts("a:1,me@localhost:2,b:3,127.0.0.1:4");
  CHECK(with_local_host_once(hosts, {false, true, false, true}) ==
        std::vector<HostSlots>{{"a", 1}, {"localhost", 6}, {"b", 3}});
  CHECK(with_local_host_once(hosts, {false, false, false, false}) == hosts);
}

}  // namespace
}  // namespace hvd::launcher
