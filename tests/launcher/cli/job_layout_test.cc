#include "launcher/cli/job_layout.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

// On each host: how many ranks. `here` is this machine, each has two cores of two threads.
std::vector<int> ranks_on_hosts(const Arguments& arguments, const Environment& environment = {}) {
  const CommandLine line = parse_command_line(arguments);
  const JobLayout layout = lay_out(line, {.environment = environment,
                                          .read_file = [](const std::string&) { return "here\nthere slots=2\n"; },
                                          .is_here = [](const std::string& host) { return host == "here"; },
                                          .hostname = "here"});
  HostDescription facts;
  for (int cpu = 0; cpu < 4; ++cpu) facts.resources.cpus.push_back({.number = cpu, .core = cpu / 2});
  facts.resources.gpus = 3;
  const std::vector<HostDescription> all(layout.hosts.size(), facts);
  std::vector<int> ranks;
  for (const HostPlan& plan : plan_hosts(layout, line, all, {})) ranks.push_back(static_cast<int>(plan.ranks.size()));
  return ranks;
}

TEST_CASE("so many ranks on each host, as mpirun, mpiexec and torchrun say it") {
  struct Row {
    Arguments options;
    std::vector<int> ranks;
  };
  const Row rows[] = {
      {{"-N", "3"}, {3}},
      {{"--pernode"}, {1}},
      {{"-N", "3", "-H", "here,there"}, {3, 3}},
      {{"-N", "2", "-H", "here:4,there:2"}, {2, 2}},
      {{"-N", "2", "--hostfile", "f"}, {2, 2}},
      {{"-H", "there:3", "--hostfile", "f"}, {3}},
      {{"-np", "3", "-ppn", "2", "-hosts", "here,there"}, {2, 1}},
      {{"-np", "5", "-ppn", "2", "-hosts", "here,there"}, {3, 2}},
      {{"--nproc_per_node=5", "-H", "here:1,there:1"}, {5, 5}},
      {{"--nproc-per-node", "gpu"}, {3}},
      {{"--nproc-per-node", "gpu", "-H", "here,there:1"}, {3, 1}},
      {{"--nproc-per-node", "auto"}, {3}},
      {{"--nproc-per-node", "cpu"}, {2}},
      {{"-N", "2", "--nnodes", "1", "-H", "here,there"}, {2}},
      {{"--standalone", "--nnodes=1:1", "--nproc-per-node=2"}, {2}},
      {{"--nolocal", "-H", "here:2,there:2"}, {2}},
      {{"-np", "9"}, {9}},
      {{"--slots-per-host", "4"}, {4}},
      {{"--slots-per-host", "4", "-H", "here,there:2"}, {4, 2}},
      {{"--use-hwthread-cpus"}, {4}},
      {{"--nooversubscribe", "-np", "2"}, {2}},
  };
  for (Row row : rows) {
    INFO(row.options.front() << " " << row.options.back());
    row.options.emplace_back("x");
    CHECK(ranks_on_hosts(row.options) == row.ranks);
  }
}

TEST_CASE("on its own host, --launcher local and --standalone leave an allocation alone") {
  const Environment slurm = {{"SLURM_JOB_NODELIST", "here,there"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}};
  CHECK(ranks_on_hosts({"x"}, slurm) == std::vector<int>{2, 2});
  CHECK(ranks_on_hosts({"--standalone", "-N", "2", "x"}, slurm) == std::vector<int>{2});
  CHECK(ranks_on_hosts({"--nnodes", "1", "x"}, slurm) == std::vector<int>{2});
}

TEST_CASE("srun also reaches hosts that -H chooses from Slurm's allocation") {
  const Environment slurm = {{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "2(x3)"}};
  const auto by_slurm = [](const char* hosts, const Environment& environment) {
    return lay_out(parse_command_line({"-H", hosts, "x"}),
                   {.environment = environment,
                    .read_file = {},
                    .is_here = [](const std::string& host) { return host == "n1"; },
                    .hostname = "n1"})
        .by_slurm;
  };
  CHECK(by_slurm("n1:2,n3:2", slurm));
  CHECK_FALSE(by_slurm("n1:2,n4:2", slurm));
  CHECK_FALSE(by_slurm("me@n2:2", slurm));
  CHECK_FALSE(by_slurm("n2:2", {}));
  CHECK_FALSE(by_slurm("n2:2", {{"SLURM_JOB_NODELIST", "n[2"}}));
}

TEST_CASE("an allocation of this host alone gives the number of ranks, and does not limit it") {
  const Environment slurm = {{"SLURM_JOB_NODELIST", "here"}, {"SLURM_TASKS_PER_NODE", "3"}};
  CHECK(ranks_on_hosts({"x"}, slurm) == std::vector<int>{3});
  CHECK(ranks_on_hosts({"-np", "1", "x", ":", "y"}, slurm) == std::vector<int>{3});
  CHECK(ranks_on_hosts({"-np", "5", "x"}, slurm) == std::vector<int>{5});
  CHECK(ranks_on_hosts({"-N", "4", "x"}, slurm) == std::vector<int>{4});
  CHECK(ranks_on_hosts({"--slots-per-host", "4", "x"}, slurm) == std::vector<int>{4});
  CHECK_THROWS_WITH(ranks_on_hosts({"--launcher", "local", "x"}, slurm), Catch::Matchers::Contains("how many"));
}

TEST_CASE("hosts and slots that are not there are named") {
  struct Row {
    Arguments options;
    std::string message;
  };
  const Row rows[] = {
      {{"-N", "2", "--nnodes", "2"}, "--nnodes 2: there is one host"},
      {{"-N", "2", "--nnodes", "3", "-H", "here,there"}, "--nnodes 3: there are 2 hosts"},
      {{"-N", "3", "-H", "here:2,there:2"}, "-N or -map-by ppr asks for 6 but only 4 slots"},
      {{"-N", "2", "-np", "3"}, "-N or -map-by ppr has places for 2 ranks, not for 3"},
      {{"--nolocal", "-np", "2"}, "--nolocal: there is no other host"},
      {{"--nooversubscribe", "-np", "3"}, "-np 3 but only 2 slots"},
      {{"--map-by", "slot:NOOVERSUBSCRIBE", "-np", "3"}, "-np 3 but only 2 slots"},
      {{"--cpu-set", "1,4", "-np", "2"}, "--cpu-set 1,4: of here ranks may use the CPUs 0-3"},
  };
  for (Row row : rows) {
    row.options.emplace_back("x");
    INFO(row.message);
    CHECK_THROWS_WITH(ranks_on_hosts(row.options), Catch::Matchers::StartsWith(row.message));
  }
}

// Each host has four cores of two threads.
std::vector<HostPlan> plans_of(const Arguments& arguments) {
  const CommandLine line = parse_command_line(arguments);
  const Environment nothing;
  const JobLayout layout = lay_out(line, {.environment = nothing,
                                          .read_file = {},
                                          .is_here = [](const std::string& host) { return host == "here"; },
                                          .hostname = "here"});
  HostDescription facts;
  for (int cpu = 0; cpu < 8; ++cpu) facts.resources.cpus.push_back({.number = cpu, .core = cpu / 2});
  return plan_hosts(layout, line, std::vector<HostDescription>(layout.hosts.size(), facts), {});
}

TEST_CASE("servers are dealt to the hosts in turn, on CPUs to which no rank is bound") {
  struct Row {
    Arguments options;
    std::vector<std::vector<int>> servers;  // by host
    std::vector<int> cpus;                  // of the first server
  };
  const Row rows[] = {
      {{"-H", "here:2,there:2"}, {{}, {}}, {}},
      {{"--servers", "3", "-H", "here:2,there:2"}, {{0, 2}, {1}}, {}},
      {{"--servers", "2", "-np", "1", "-H", "here:2,there:2"}, {{0}, {1}}, {}},
      {{"--servers", "1", "-np", "3", "--bind-to", "core"}, {{0}}, {6, 7}},
      {{"--servers", "1", "-np", "4", "--bind-to", "core"}, {{0}}, {}},
      {{"--servers", "1", "-np", "2", "--bind-to", "core", "--cpu-set", "0-3"}, {{0}}, {0, 1, 2, 3}},
      {{"--servers", "1", "-np", "2", "--cpu-set", "0-3"}, {{0}}, {0, 1, 2, 3}},
  };
  for (Row row : rows) {
    row.options.emplace_back("x");
    CAPTURE(row.options);
    const std::vector<HostPlan> plans = plans_of(row.options);
    std::vector<std::vector<int>> servers;
    int ranks = 0;
    for (const HostPlan& plan : plans) {
      ranks += static_cast<int>(plan.ranks.size());
      std::vector<int>& here = servers.emplace_back();
      for (const RankPlan& server : plan.servers) {
        here.push_back(server.server);
        CHECK(server.numbers.size == plans.front().ranks.front().numbers.size);
        CHECK(server.numbers.rank == server.numbers.size + server.server);
      }
    }
    CHECK(servers == row.servers);
    CHECK(plans.front().ranks.front().numbers.size == ranks);
    for (const RankPlan& server : plans.front().servers) CHECK(server.cpus == row.cpus);
  }
}

TEST_CASE("ranks stay within the CPUs of --cpu-set") {
  const auto cpus_of = [](const Arguments& arguments) {
    const std::vector<HostPlan> plans = plans_of(arguments);
    std::vector<std::vector<int>> cpus;
    for (const RankPlan& rank : plans.front().ranks) cpus.push_back(rank.cpus);
    return cpus;
  };
  using Cpus = std::vector<std::vector<int>>;
  CHECK(cpus_of({"-np", "2", "x"}) == Cpus{{}, {}});
  CHECK(cpus_of({"-np", "2", "--cpu-set", "5,2-3", "x"}) == Cpus{{2, 3, 5}, {2, 3, 5}});
  CHECK(cpus_of({"-np", "2", "--cpu-list", "2-5", "--bind-to", "core", "x"}) == Cpus{{2, 3}, {4, 5}});
  CHECK(cpus_of({"-N", "2", "x"}) == Cpus{{}, {}});
  CHECK(cpus_of({"-N", "2", "--bind-to", "hwthread", "x"}) == Cpus{{0}, {2}});
}

}  // namespace
}  // namespace hvd::launcher
