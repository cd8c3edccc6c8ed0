#include "launcher/remote/messages.h"

#include <unistd.h>

#include "core/base/error.h"
#include "core/net/socket.h"
#include "launcher/processes/child_process.h"
#include "tests/support/catch.h"

namespace hvd::launcher {

namespace {

TEST_CASE("an agent that srun starts finds its number by its node's name") {
  proto::Bootstrap bootstrap;
  bootstrap.set_host(3);
  CHECK(node_of(bootstrap, nullptr) == 3);
  CHECK(node_of(bootstrap, "n7") == 3);  // ssh has started it, in an allocation
  for (const int host : {3, 5}) {
    proto::Node& node = *bootstrap.add_nodes();
    node.set_name("n" + std::to_string(host));
    node.set_host(static_cast<std::uint32_t>(host));
  }
  CHECK(node_of(bootstrap, "n5") == 5);
  CHECK_THROWS_WITH(node_of(bootstrap, "n7"), Catch::Matchers::Contains("n7"));
  CHECK_THROWS_AS(node_of(bootstrap, nullptr), Internal);
}

TEST_CASE("a host's plan arrives as it was") {
  HostPlan plan;
  plan.name = plan.rendezvous.hostname = "h2";
  plan.rendezvous.address = "10.9.0.2";
  plan.rendezvous.job_key_hex = "00ff";
  plan.merge_errors = true;
  plan.programs.push_back({.file = "",
                           .arguments = {"python", "train.py", "\xe9"},  // what is not UTF-8, too
                           .environment = {{"PATH", "/bin"}, {"NAME", "\xe9t\xe9"}},
                           .exports = {{"A", "1"}},
                           .working_directory = "/tmp"});
  for (const int local : {0, 1}) {
    plan.ranks.push_back(
        {.numbers =
             {.rank = 4 + local, .size = 8, .local_rank = local, .local_size = 2, .cross_rank = 1, .cross_size = 3},
         .program = 0,
         .cpus = {local, 7},
         .visible_gpus = "2,3",
         .reads_input = local == 1});
  }
  plan.servers_of_job = 3;
  plan.servers.push_back({.numbers = {.rank = 12, .size = 8}, .server = 2, .server_start = 4, .cpus = {6}});
  auto message = to_message(plan);
  REQUIRE(message.ParseFromString(message.SerializeAsString()));
  const HostPlan copy = from_message(message);
  REQUIRE(copy.servers.size() == 1);
  CHECK(copy.servers_of_job == 3);
  CHECK(copy.servers[0].numbers.rank == 12);
  CHECK(copy.servers[0].numbers.size == 8);
  CHECK(copy.servers[0].server == 2);
  CHECK(copy.servers[0].server_start == 4);
  CHECK(copy.servers[0].cpus == std::vector<int>{6});
  CHECK(copy.ranks[0].server == -1);
  CHECK(copy.name == "h2");
  CHECK(copy.rendezvous.hostname == "h2");
  CHECK(copy.rendezvous.address == "10.9.0.2");
  CHECK(copy.rendezvous.job_key_hex == "00ff");
  CHECK(copy.merge_errors);
  REQUIRE(copy.programs.size() == 1);
  CHECK(copy.programs[0].arguments == plan.programs[0].arguments);
  CHECK(copy.programs[0].environment == plan.programs[0].environment);
  CHECK(copy.programs[0].exports == plan.programs[0].exports);
  CHECK(copy.programs[0].working_directory == "/tmp");
  REQUIRE(copy.ranks.size() == 2);
  const RankPlan& rank = copy.ranks[1];
  CHECK(rank.numbers.rank == 5);
  CHECK(rank.numbers.size == 8);
  CHECK(rank.numbers.local_rank == 1);
  CHECK(rank.numbers.local_size == 2);
  CHECK(rank.numbers.cross_rank == 1);
  CHECK(rank.numbers.cross_size == 3);
  CHECK(rank.cpus == std::vector<int>{1, 7});
  CHECK(rank.visible_gpus == "2,3");
  CHECK(rank.reads_input);
  CHECK_FALSE(copy.ranks[0].reads_input);
}

TEST_CASE("a rank without a program is refused") {
  proto::Start message;
  message.add_ranks()->set_program(0);
  CHECK_THROWS_AS(from_message(message), Internal);
  message.add_programs();  // without a name
  CHECK_THROWS_AS(from_message(message), Internal);
}

TEST_CASE("a status is the same after its way over the network") {
  RankStatus full;
  full.rank = 3;
  full.pid = 4711;
  full.stopped = full.in_job = full.ended = true;
  full.counters.operations = 1;
  full.counters.bytes = 2;
  full.counters.locked_steps = 3;
  full.counters.rounds = 4;
  full.counters.lock_state = 2;
  full.counters.exposed_time = 5s;
  full.initializing = 6s;
  full.stall_time = 7s;
  full.since_progress = 8ns;
  full.open = {{.state = OperationStatus::State::given_up,
                .process_set = 1,
                .sequence = 7,
                .what = "allreduce",
                .name = "w7\xff",
                .shape = "float32[4, 5]",
                .age = 1s}};
  full.more_open = 9;
  full.sets = {{0, 8, 6}, {5, 3, 3}};
  full.stall = "stalled";
  full.frame = PythonFrame{"train.py", 48, "main"};
  full.stack = "Thread";
  full.shards = {{.number = 0,
                  .answers = true,
                  .pushes = 1,
                  .pulls = 2,
                  .rows = 3,
                  .bytes = 4,
                  .staleness_median = 5,
                  .staleness_worst = 6,
                  .queue = 7,
                  .waiting = 8,
                  .slowest = 0},
                 {.number = 1}};
  full.awaited = 0;
  full.waited = 9s;
  proto::RankStatus arrived;
  REQUIRE(arrived.ParseFromString(to_message(full).SerializeAsString()));
  CHECK(from_message(arrived) == full);
  CHECK(from_message(to_message(RankStatus())) == RankStatus());
  arrived.mutable_open(0)->set_state(99);
  CHECK(from_message(arrived).open.front().state == OperationStatus::State::given_up);
}

proto::Bootstrap read_from(const std::string& bytes) {
  auto [reader, writer] = make_pipe();
  REQUIRE(write(writer.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  writer.reset();
  return read_bootstrap(reader.get(), deadline_after(5s));
}

TEST_CASE("what an agent is given arrives") {
  proto::Bootstrap bootstrap;
  bootstrap.set_host(3);
  bootstrap.set_key("secret");
  bootstrap.add_addresses("tcp:10.9.0.1:4711");
  const proto::Bootstrap read = read_from(encode_bootstrap(bootstrap) + "more");
  CHECK(read.host() == 3);
  CHECK(read.key() == "secret");
  CHECK(read.addresses(0) == "tcp:10.9.0.1:4711");
}

TEST_CASE("anything else is refused") {
  for (const char* bytes : {"", "\n", "x\n", "0\n", "9999999\n", "999999\n", "5\nabc", "3\n\xff\xff\xff", "-1\n"}) {
    CAPTURE(bytes);
    CHECK_THROWS_AS(read_from(bytes), InvalidArgument);
  }
}

TEST_CASE("and who says nothing is waited for until the deadline only") {
  const auto [reader, writer] = make_pipe();
  CHECK_THROWS_AS(read_bootstrap(reader.get(), deadline_after(20ms)), Timeout);
}

}  // namespace

}  // namespace hvd::launcher
