#include "launcher/plan/torch_variables.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

constexpr RankPlace kPlace{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .cross_rank = 1, .cross_size = 2};

HostRendezvous rendezvous_on_second_host() {
  HostRendezvous rendezvous;
  rendezvous.group_rank = 1;
  rendezvous.master_address = "10.0.0.7";
  rendezvous.master_port = "4711";
  return rendezvous;
}

TEST_CASE("a rank has torchrun's variables, and nothing of another torchrun's") {
  Environment environment{{"PATH", "/bin"}, {"RANK", "77"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  set_torch_variables(environment, kPlace, rendezvous_on_second_host());
  CHECK(environment == Environment{{"PATH", "/bin"},
                                   {"RANK", "5"},
                                   {"WORLD_SIZE", "8"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"GROUP_RANK", "1"},
                                   {"MASTER_ADDR", "10.0.0.7"},
                                   {"MASTER_PORT", "4711"},
                                   {"HVD_TORCH_VARIABLES",
                                    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 "
                                    "MASTER_ADDR=10.0.0.7 MASTER_PORT=4711"}});
}

TEST_CASE("ranks of a host share its CPUs among their OpenMP threads, unless somebody has said how many") {
  const auto threads = [](Environment environment, int local_size, std::size_t cpus) {
    share_openmp_threads(environment, local_size, cpus);
    return environment["OMP_NUM_THREADS"];
  };
  CHECK(threads({}, 4, 2) == "1");
  CHECK(threads({}, 4, 16) == "4");
  CHECK(threads({}, 3, 8) == "2");
  CHECK(threads({}, 1, 8).empty());
  CHECK(threads({{"OMP_NUM_THREADS", "7"}}, 4, 16) == "7");
}

TEST_CASE("where rank 0 is to be met is the user's to choose") {
  Environment environment;
  set_torch_variables(environment, kPlace, rendezvous_on_second_host());
  keep_chosen_master(environment, {{"MASTER_PORT", "29500"}, {"RANK", "3"}});
  CHECK(environment["MASTER_PORT"] == "29500");
  CHECK(environment["MASTER_ADDR"] == "10.0.0.7");
  CHECK(environment["RANK"] == "5");
}

TEST_CASE("what is replaced is said, unless a job around this one has set it") {
  CHECK(replaced_torch_variables({{"PATH", "/bin"}}, {}).empty());
  const Environment users{{"WORLD_SIZE", "4"}, {"MASTER_PORT", "29500"}, {"RANK", "1"}};
  CHECK(replaced_torch_variables(users, {}) == "RANK=1 WORLD_SIZE=4 MASTER_PORT=29500");
  CHECK(replaced_torch_variables(users, {{"MASTER_PORT", "29500"}, {"RANK", "1"}}) == "RANK=1 WORLD_SIZE=4");
  Environment ours;
  set_torch_variables(ours, kPlace, rendezvous_on_second_host());
  CHECK(replaced_torch_variables(ours, {}).empty());
  ours["RANK"] = "55";
  CHECK(replaced_torch_variables(ours, {}) == "RANK=55");
}

}  // namespace
}  // namespace hvd::launcher
