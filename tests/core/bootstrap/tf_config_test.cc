#include "core/bootstrap/launch_environment.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

const std::string kCluster = R"({"chief": ["a:1"], "worker": ["b:1", "a:2"], "ps": ["p:1"], "evaluator": ["e:1"]})";

std::string config(const std::string& cluster, const std::string& task) {
  return R"({"cluster": )" + cluster + R"(, "task": )" + task + R"(, "environment": "cloud"})";
}

std::string task(const std::string& type, const std::string& index) {
  return R"({"type": ")" + type + R"(", "index": )" + index + "}";
}

}  // namespace

TEST_CASE("TF_CONFIG: the chief is rank 0 and has the store, the workers follow") {
  struct Row {
    const char* what;
    std::string config;
    Launcher launcher;
    int rank, size;
    const char* store;
    int servers = 0, server = -1;
  };
  const auto row = GENERATE(values<Row>({
      {"chief", config(kCluster, task("chief", "0")), Launcher::tf_config, 0, 3, "tcp:a:1", 1},
      {"first worker after a chief", config(kCluster, task("worker", "0")), Launcher::tf_config, 1, 3, "tcp:a:1", 1},
      {"last worker", config(kCluster, task("worker", "1")), Launcher::tf_config, 2, 3, "tcp:a:1", 1},
      {"no chief", config(R"({"worker": ["h:7", "h:8"]})", task("worker", "1")), Launcher::tf_config, 1, 2, "tcp:h:7"},
      {"an index as text", config(R"({"worker": ["h:7", "h:8"]})", task("worker", R"("1")")), Launcher::tf_config, 1, 2,
       "tcp:h:7"},
      {"an evaluator is alone", config(kCluster, task("evaluator", "0")), Launcher::tf_config, 0, 1, "tcp::0"},
      {"a server", config(kCluster, task("ps", "0")), Launcher::tf_config, -1, 3, "tcp:a:1", 1, 0},
      {"the second server of one worker", config(R"({"worker": ["h:7"], "ps": ["p:1", "p:2"]})", task("ps", "1")),
       Launcher::tf_config, -1, 1, "tcp:h:7", 2, 1},
      {"one worker with a server", config(R"({"worker": ["h:7"], "ps": ["p:1"]})", task("worker", "0")),
       Launcher::tf_config, 0, 1, "tcp:h:7", 1},
      {"one worker", config(R"({"worker": ["h:7"]})", task("worker", "0")), Launcher::none, 0, 1, "tcp::0"},
      {"an empty cluster", config("{}", "{}"), Launcher::none, 0, 1, "tcp::0"},
      {"no cluster", R"({"task": {}})", Launcher::none, 0, 1, "tcp::0"},
  }));
  INFO(row.what);
  const Launch launch = read_tf_config(row.config);
  CHECK(launch.launcher == row.launcher);
  CHECK(launch.rank == row.rank);
  CHECK(launch.size == row.size);
  CHECK(launch.local_size == 0);
  CHECK(launch.store.to_string() == row.store);
  CHECK(launch.servers == row.servers);
  CHECK(launch.server == row.server);
}

TEST_CASE("TF_CONFIG: what makes no sense is refused, and the text says what") {
  const auto worker = [](const std::string& addresses) {
    return config(R"({"worker": )" + addresses + "}", task("worker", "0"));
  };
  const auto [text, complaint] = GENERATE_COPY(table<std::string, std::string>({
      {"{", "TF_CONFIG: it is no JSON: "},
      {"[]", "it is [], not of JSON's type object"},
      {R"({"cluster": 3})", R"("cluster" is 3, not of JSON's type object)"},
      {R"({"cluster": )" + kCluster + "}", R"("task" is missing)"},
      {config(kCluster, R"({"index": 0})"), R"("type" is missing)"},
      {config(kCluster, R"({"type": "worker"})"), "the task is worker null, but the cluster has 2 of that type"},
      {config(kCluster, task("worker", "2")), "the task is worker 2, but the cluster has 2 of that type"},
      {config(kCluster, task("worker", "-1")), "the task is worker -1,"},
      {config(kCluster, task("worker", "0.5")), "the task is worker 0.5,"},
      {config(R"({"worker": ["a:1", "a:2"]})", task("chief", "0")), "the cluster has 0 of that type"},
      {config(kCluster, task("ps", "1")), "the task is ps 1, but the cluster has 1 of that type"},
      {config(R"({"ps": ["p:1"]})", task("ps", "0")), "the cluster has neither a chief nor a worker"},
      {config(R"({"worker": ["a:1"], "ps": ["a:1"]})", task("ps", "0")), "two members of the cluster are at a:1"},
      {config(kCluster, task("master", "0")), "the task is master, neither chief nor worker nor ps"},
      {config(R"({"chief": ["a:1", "a:2"]})", task("chief", "0")), "more than one chief"},
      {config(R"({"chief": ["a:1"], "worker": ["b:1", "a:1"]})", task("worker", "0")),
       "two members of the cluster are at a:1"},
      {worker(R"("a:1")"), R"("worker" is "a:1", not of JSON's type array)"},
      {worker("[1]"), R"(an address of "worker" is 1, not of JSON's type string)"},
      {worker(R"(["a", "b:1"])"), "'a' is not host:port"},
      {worker(R"(["[::1]:1", "b:1"])"), "'[::1]:1' is not host:port, where host is a name or an IPv4 address"},
      {worker(R"(["::1:1", "b:1"])"), "'::1:1' is not host:port"},
      {worker(R"(["a:70000", "b:1"])"), "'a:70000' is not host:port"},
  }));
  CAPTURE(text);
  CHECK_THROWS_AS(read_tf_config(text), InvalidArgument);
  CHECK_THROWS_WITH(read_tf_config(text), Catch::Matchers::Contains(complaint));
}

}  // namespace hvd::testing
