#include "launcher/hosts.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

constexpr const char* kOwn = "node7.cluster";

TEST_CASE("host lists are read") {
  CHECK(parse_hosts("localhost:4") == std::vector<HostSlots>{{"localhost", 4}});
  CHECK(parse_hosts("localhost") == std::vector<HostSlots>{{"localhost", 1}});
  CHECK(parse_hosts("a:2,b,c:3") == std::vector<HostSlots>{{"a", 2}, {"b", 1}, {"c", 3}});
  for (const char* text :
       {"", ":4", "a:", "a:0", "a:-1", "a:x", "a:4x", "a:4,", ",a", "a:1:2", "a: 4", "a:9999999999"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_hosts(text), InvalidArgument);
  }
}

TEST_CASE("hostfiles of Open MPI, Horovod and MPICH are read") {
  CHECK(parse_hostfile("localhost slots=4\n") == std::vector<HostSlots>{{"localhost", 4}});
  CHECK(parse_hostfile("# nodes\n\n a slots=2 max_slots=4 # two\r\nb:3\n\tc") ==
        std::vector<HostSlots>{{"a", 2}, {"b", 3}, {"c", 1}});
  struct Row {
    const char* text;
    const char* in_message;
  };
  for (const Row& row : {Row{"", "names no host"}, Row{"# none\n", "names no host"},
                         Row{"a\nb slots=x\n", "line 2 of the hostfile"}, Row{"a slots=0", "line 1 of the hostfile"},
                         Row{"a slots 4", "\"slots\" is not understood"}, Row{"a:0", "line 1"}}) {
    CHECK_THROWS_WITH(parse_hostfile(row.text), Catch::Matchers::Contains(row.in_message));
  }
}

TEST_CASE("with --oversubscribe there may be more ranks than slots") {
  CHECK(count_local_ranks(8, parse_hosts("localhost:4"), kOwn, true) == 8);
  CHECK(count_local_ranks(std::nullopt, parse_hosts("localhost:4"), kOwn, true) == 4);
}

TEST_CASE("the number of ranks follows from -np and the slots") {
  struct Row {
    std::optional<int> num_proc;
    const char* hosts;
    int ranks;
  };
  const Row rows[] = {
      {4, nullptr, 4},
      {std::nullopt, "localhost:3", 3},
      {2, "localhost:3", 2},
      {3, "localhost:3", 3},
      {std::nullopt, "localhost", 1},
      {5, "localhost:2,127.0.0.1:3", 5},
      {std::nullopt, "node7:2,node7.cluster:2", 4},
  };
  for (const Row& row : rows) {
    const auto hosts = row.hosts ? parse_hosts(row.hosts) : std::vector<HostSlots>{};
    CHECK(count_local_ranks(row.num_proc, hosts, kOwn, false) == row.ranks);
  }
}

TEST_CASE("what this host cannot run is refused") {
  struct Row {
    std::optional<int> num_proc;
    const char* hosts;
    const char* in_message;
  };
  const Row rows[] = {
      {std::nullopt, nullptr, "-np N"},
      {8, "localhost:4", "-np 8 but only 4 slots; raise it with -H localhost:8"},
      {2, "localhost", "-np 2 but only 1 slot;"},
      {2, "node8:2", "\"node8\" is not this host (node7.cluster); several hosts are not supported yet"},
      {2, "localhost:2,10.0.0.1:2", "\"10.0.0.1\""},
      {std::nullopt, "localhost:1000000,localhost:1", "more than 1000000"},
      {2'000'000'000, nullptr, "2000000000 processes are more than 1000000"},
  };
  for (const Row& row : rows) {
    INFO(row.in_message);
    try {
      count_local_ranks(row.num_proc, row.hosts ? parse_hosts(row.hosts) : std::vector<HostSlots>{}, kOwn, false);
      FAIL("no error");
    } catch (const InvalidArgument& error) {
      CHECK(std::string(error.what()).find(row.in_message) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hvd::launcher
