#include "launcher/plan/plan_text.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

PlannedRank planned_rank(int number, int size, int local_rank, int local_size) {
  return {.place = {.rank = number, .size = size, .local_rank = local_rank, .local_size = local_size}};
}

TEST_CASE("a plan shows hosts, ranks and environments, and no key") {
  PlannedRank first = planned_rank(0, 3, 0, 2), second = planned_rank(1, 3, 1, 2), third = planned_rank(2, 3, 0, 1);
  first.cpus = {0, 1, 2, 3};
  second.cpus = {4, 5};
  first.place.cross_size = third.place.cross_size = 2;
  third.place.cross_rank = 1;
  third.gpus = "0,1";
  first.environment = {{"HVD_JOB_KEY", "c0ffee"}, {"HVD_RANK", "0"}, {"HVD_HOSTNAME", "my node"}};
  const PlannedJob job{
      .hosts_from = "-H",
      .programs = {{"python", "train.py", "two words"}},
      .hosts = {{.name = "node1", .slots = 2, .ranks = {first, second}},
                {.name = "node2", .start_command = "ssh node2 hvdrun agent", .slots = 1, .ranks = {third}}}};
  CHECK(plan_text(job) == R"(3 ranks on 2 hosts, from -H
program: python train.py 'two words'

node1: 2 ranks, 2 slots
  started by: hvdrun itself, on this machine
  rank  local  cross  CPUs  GPUs
  0/3   0/2    0/2    0-3   as they are
  1/3   1/2    0/1    4-5   as they are
  environment of rank 0:
    HVD_HOSTNAME='my node'
    HVD_JOB_KEY=(secret)
    HVD_RANK=0

node2: 1 rank, 1 slot
  started by: ssh node2 hvdrun agent
  rank  local  cross  CPUs  GPUs
  2/3   0/1    1/2    all   0,1
)");
}

TEST_CASE("a plan of several programs tells which rank has which") {
  PlannedRank second = planned_rank(1, 2, 1, 2);
  second.program = 1;
  const PlannedJob job{.hosts_from = "",
                       .programs = {{"server"}, {"client", "-v"}},
                       .hosts = {{.name = "localhost", .slots = 2, .ranks = {planned_rank(0, 2, 0, 2), second}}}};
  CHECK(plan_text(job) == R"(2 ranks on 1 host
program 0: server
program 1: client -v

localhost: 2 ranks, 2 slots
  started by: hvdrun itself, on this machine
  rank  local  cross  CPUs  GPUs         program
  0/2   0/2    0/1    all   as they are  0
  1/2   1/2    0/1    all   as they are  1
)");
}

}  // namespace
}  // namespace hvd::launcher
