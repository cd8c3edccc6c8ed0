#include "simulation/command_line.h"

#include <stdexcept>

#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::simulation;

TEST_CASE("without arguments: 1,024 ranks, 1,000 tensors, a network without faults") {
  const Settings settings = parse_command_line({});
  CHECK(settings.job.ranks == 1024);
  CHECK(settings.job.ranks_per_host == 8);
  CHECK(settings.job.operations.size() == 1000);
  CHECK(settings.job.alike);
  CHECK(settings.job.network.between_hosts.latency == 12us);
  CHECK(settings.job.network.jitter == 0us);
  CHECK(settings.job.network.drop == 0);
  CHECK_FALSE(settings.lost);
  CHECK_FALSE(settings.curve);
  CHECK_FALSE(settings.calibrates);
  CHECK(settings.information.empty());
}

TEST_CASE("options arrive where they belong") {
  const Settings settings = parse_command_line({"--ranks",
                                                "100",
                                                "--ranks-per-host",
                                                "4",
                                                "--tensors",
                                                "7",
                                                "--kill",
                                                "99",
                                                "--seed",
                                                "5",
                                                "--latency-us",
                                                "1.5",
                                                "--overhead-us",
                                                "0.5",
                                                "--bandwidth-gbit",
                                                "100",
                                                "--jitter-us",
                                                "3",
                                                "--drop",
                                                "0.01",
                                                "--curve",
                                                "--json",
                                                "f"});
  CHECK(settings.job.ranks == 100);
  CHECK(settings.job.ranks_per_host == 4);
  CHECK(settings.job.operations.size() == 7);
  CHECK(settings.lost == 99);
  CHECK(settings.job.seed == 5);
  CHECK(settings.job.network.between_hosts.latency == 1500ns);
  CHECK(settings.job.network.between_hosts.overhead == 500ns);
  CHECK(settings.job.network.between_hosts.gbit == 100);
  CHECK(settings.job.network.jitter == 3us);
  CHECK(settings.job.network.drop == 0.01);
  CHECK(settings.curve);
  CHECK(settings.json == "f");
}

TEST_CASE("what cannot be is refused") {
  const std::vector<std::vector<std::string>> cases = {
      {"--ranks", "0"},   {"--ranks", "many"}, {"--ranks-per-host", "0"}, {"--tensors", "0"},
      {"--kill", "1024"}, {"--kill", "-1"},    {"--drop", "1"},           {"--latency-us", "-1"},
      {"extra"},          {"--unknown"},       {"--latency-us", "nan"}};
  for (const auto& arguments : cases) {
    CAPTURE(arguments);
    CHECK_THROWS_AS(parse_command_line(arguments), std::invalid_argument);
  }
}

TEST_CASE("--help lists the options") {
  CHECK_THAT(parse_command_line({"--help"}).information, Catch::Matchers::Contains("--ranks-per-host"));
}
