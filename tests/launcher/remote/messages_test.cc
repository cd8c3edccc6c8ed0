#include "launcher/remote/messages.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a host's plan arrives as it was") {
  HostPlan plan;
  plan.name = plan.rendezvous.hostname = "h2";
  plan.rendezvous.address = "10.9.0.2";
  plan.rendezvous.job_key_hex = "00ff";
  plan.merge_errors = true;
  plan.programs.push_back({.file = "",
                           .arguments = {"python", "train.py"},
                           .environment = {{"PATH", "/bin"}},
                           .exports = {{"A", "1"}},
                           .working_directory = "/tmp"});
  for (const int local : {0, 1}) {
    plan.ranks.push_back(
        {.place =
             {.rank = 4 + local, .size = 8, .local_rank = local, .local_size = 2, .cross_rank = 1, .cross_size = 3},
         .program = 0,
         .cpus = {local, 7},
         .visible_gpus = "2,3",
         .reads_input = local == 1});
  }
  const HostPlan copy = from_message(to_message(plan));
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
  CHECK(rank.place.rank == 5);
  CHECK(rank.place.size == 8);
  CHECK(rank.place.local_rank == 1);
  CHECK(rank.place.local_size == 2);
  CHECK(rank.place.cross_rank == 1);
  CHECK(rank.place.cross_size == 3);
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

}  // namespace
}  // namespace hvd::launcher
