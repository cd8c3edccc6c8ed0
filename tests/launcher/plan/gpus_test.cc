#include "launcher/plan/gpus.h"

#include <unistd.h>

#include <filesystem>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Gpus = std::vector<int>;

// A folder in which a driver lists its GPUs.
class Driver {
 public:
  Driver() { std::filesystem::create_directories(path_); }
  ~Driver() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  void add(const char* gpu) const { std::filesystem::create_directory(path_ / gpu); }

 private:
  const std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("hvd-gpus-" + std::to_string(getpid()));
};

TEST_CASE("each rank of a host has GPUs of its own") {
  struct Row {
    const char* rule;
    int local_rank, local_size, on_host;
    Gpus gpus;
  };
  const Row rows[] = {
      {"1", 0, 4, 4, {0}},
      {"1", 3, 4, 4, {3}},
      {"2", 1, 4, 8, {2, 3}},
      {"2", 1, 2, 8, {2, 3}},
      {"auto", 1, 2, 8, {4, 5, 6, 7}},
      {"auto", 2, 3, 8, {4, 5}},
      {"auto", 3, 4, 4, {3}},
      {"auto", 5, 8, 4, {1}},
      {"auto", 0, 4, 0, {}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.rule, row.local_rank, row.local_size, row.on_host);
    CHECK(gpus_of_rank(parse_gpus_per_rank(row.rule), row.local_rank, row.local_size, row.on_host, "node7") ==
          row.gpus);
  }
  CHECK_THROWS_WITH(gpus_of_rank(parse_gpus_per_rank("2"), 0, 4, 4, "node7"),
                    "--gpus-per-rank 2: node7 has 4 ranks and 4 GPUs");
  for (const char* text : {"", "0", "-1", "all", "2x", "99999"}) {
    CHECK_THROWS_WITH(parse_gpus_per_rank(text), Catch::Matchers::Contains("--gpus-per-rank"));
  }
}

TEST_CASE("a rank's GPUs are some of those that its host's variable lists") {
  CHECK(visible_devices({0, 1}, std::nullopt) == "0,1");
  CHECK(visible_devices({1}, "4,5") == "5");
  CHECK(visible_devices({0, 1}, "GPU-3fa1,MIG-77") == "GPU-3fa1,MIG-77");
  CHECK(visible_devices({}, "4,5").empty());
}

TEST_CASE("GPUs are counted where the driver lists them") {
  const Driver driver;
  CHECK(count_gpus(std::nullopt, driver.path() + "/nothing") == 0);
  CHECK(count_gpus("0,1", driver.path() + "/nothing") == 0);
  driver.add("0000:01:00.0");
  driver.add("0000:02:00.0");
  CHECK(count_gpus(std::nullopt, driver.path()) == 2);
  CHECK(count_gpus("1", driver.path()) == 1);
  CHECK(count_gpus("", driver.path()) == 0);
  CHECK(count_gpus("0,-1,1", driver.path()) == 1);
  CHECK(count_gpus("MIG-1,MIG-2,MIG-3", driver.path()) == 3);
}

}  // namespace
}  // namespace hvd::launcher
