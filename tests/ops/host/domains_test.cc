#include "ops/host/domains.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

CpuSet cpus(std::size_t first, std::size_t count) {
  CpuSet set;
  for (std::size_t cpu = first; cpu < first + count; ++cpu) set.set(cpu);
  return set;
}

// `count` domains of `size` CPUs each, one behind the other.
std::vector<CpuSet> domains_of(std::size_t count, std::size_t size) {
  std::vector<CpuSet> domains;
  for (std::size_t i = 0; i < count; ++i) domains.push_back(cpus(i * size, size));
  return domains;
}

// Rank r on CPU r * stride.
std::vector<CpuSet> bound_ranks(std::size_t ranks, std::size_t stride) {
  std::vector<CpuSet> sets;
  for (std::size_t rank = 0; rank < ranks; ++rank) sets.push_back(cpus(rank * stride, 1));
  return sets;
}

using Divisions = std::vector<std::vector<CpuSet>>;

}  // namespace

TEST_CASE("domains: two sockets with a rank on each core") {
  const auto ranks = bound_ranks(8, 1);
  CHECK(choose_domains(ranks, Divisions{domains_of(2, 4)}) == Domains{{0, 1, 2, 3}, {4, 5, 6, 7}});
}

TEST_CASE("domains: ranks dealt to the sockets by turns") {
  std::vector<CpuSet> ranks;
  for (std::size_t rank = 0; rank < 6; ++rank) ranks.push_back(cpus(rank % 2 * 16 + rank / 2, 1));
  CHECK(choose_domains(ranks, Divisions{domains_of(2, 16)}) == Domains{{0, 2, 4}, {1, 3, 5}});
}

TEST_CASE("domains: one group of all where a division is not worth it") {
  const Domains four{{0, 1, 2, 3}}, eight{{0, 1, 2, 3, 4, 5, 6, 7}};
  CHECK(choose_domains(bound_ranks(4, 1), Divisions{domains_of(2, 2)}) == four);   // as many ranks as domains
  CHECK(choose_domains(bound_ranks(8, 1), Divisions{domains_of(4, 2)}) == eight);  // fewer
  CHECK(choose_domains(bound_ranks(4, 1), Divisions{domains_of(1, 64)}) == four);
  CHECK(choose_domains(bound_ranks(4, 1), Divisions{{}, {}}) == four);  // nothing known
}

TEST_CASE("domains: one group of all where a rank is not bound to one domain") {
  auto ranks = bound_ranks(8, 1);
  ranks[3] = cpus(0, 8);
  CHECK(choose_domains(ranks, Divisions{domains_of(2, 4)}).size() == 1);
  ranks[3] = {};
  CHECK(choose_domains(ranks, Divisions{domains_of(2, 4)}).size() == 1);
}

TEST_CASE("domains: of caches and sockets the division that saves more") {
  // Two sockets of four caches of eight cores: a rank on each core.
  const auto ranks = bound_ranks(64, 1);
  const auto groups = choose_domains(ranks, Divisions{domains_of(2, 32), domains_of(8, 8)});
  REQUIRE(groups.size() == 2);
  CHECK(groups[1].front() == 32);
  // One socket whose caches serve 24 cores each.
  CHECK(choose_domains(ranks, Divisions{domains_of(1, 64), domains_of(2, 32)}).size() == 2);
}

TEST_CASE("domains: sockets without a rank do not count, unequal ones do by the smallest") {
  CHECK(choose_domains(bound_ranks(6, 1), Divisions{domains_of(8, 6)}).size() == 1);
  CHECK(choose_domains(bound_ranks(7, 1), Divisions{domains_of(2, 4)}) == Domains{{0, 1, 2, 3}, {4, 5, 6}});
  CHECK(choose_domains(bound_ranks(6, 1), Divisions{domains_of(2, 4)}).size() == 1);
}

TEST_CASE("domains: the kernel's lists of CPUs") {
  CHECK(parse_cpu_list("") == CpuSet{});
  CHECK(parse_cpu_list("0-3,8") == (cpus(0, 4) | cpus(8, 1)));
  CHECK(parse_cpu_list("1023").count() == 1);
  for (const char* wrong : {"1024", "3-1", "x", "1,x", "1-", "-1", "1;2"}) {
    CAPTURE(wrong);
    CHECK(parse_cpu_list(wrong).none());
  }
}

TEST_CASE("domains: what the kernel tells is read from its files") {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("hvd-domains-" + std::to_string(getpid()));
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  };
  write("node/node0/cpulist", "0-3");
  write("node/node1/cpulist", "4-7");
  write("node/possible", "0-1");
  for (const char* cpu : {"0", "1"}) write(std::string("cpu/cpu") + cpu + "/cache/index3/shared_cpu_list", "0-1");
  write("cpu/cpu2/cache/index3/shared_cpu_list", "2-3");
  auto divisions = read_divisions(cpus(0, 3), root);
  std::sort(divisions[0].begin(), divisions[0].end(),
            [](const CpuSet& a, const CpuSet& b) { return a.to_string() < b.to_string(); });
  CHECK(divisions == Divisions{{cpus(0, 4), cpus(4, 4)}, {cpus(0, 2), cpus(2, 2)}});
  CHECK(read_divisions(cpus(0, 5), root)[1].empty());  // nothing known of CPU 4
  CHECK(read_divisions(cpus(0, 1), root / "nowhere") == Divisions{{}, {}});
  std::filesystem::remove_all(root);
}
