#include "launcher/plan/job_environment.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("an environment is read and written") {
  const char* const entries[] = {"A=1", "EMPTY=", "EQUALS=a=b", "no_value", nullptr};
  const Environment environment = parse_environment(entries);
  CHECK(environment == Environment{{"A", "1"}, {"EMPTY", ""}, {"EQUALS", "a=b"}});
  CHECK(to_entries(environment) == std::vector<std::string>{"A=1", "EMPTY=", "EQUALS=a=b"});
  CHECK(parse_environment(nullptr).empty());
}

TEST_CASE("the option -x sets, passes on, and names what is not there") {
  Environment environment{{"A", "1"}, {"B", "2"}};
  const auto not_set = apply_exports(environment, {"A", "B=3", "C=4", "D=", "E=x=y", "MISSING", "A=5"});
  CHECK(not_set == std::vector<std::string>{"MISSING"});
  CHECK(environment == Environment{{"A", "5"}, {"B", "3"}, {"C", "4"}, {"D", ""}, {"E", "x=y"}});
}

TEST_CASE("a rank finds its place under both names, and nothing from outside overrides it") {
  const Environment base{{"HVD_RANK", "99"}, {"HOROVOD_SIZE", "99"}, {"HVD_JOB_KEY", "old"}, {"PATH", "/bin"}};
  const RankPlace place{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .cross_rank = 1, .cross_size = 2};
  const HostRendezvous rendezvous{.hostname = "node7", .store = "tcp:127.0.0.1:4711", .job_key_hex = "c0ffee"};
  CHECK(environment_of_rank(base, place, rendezvous) == Environment{
                                                            {"PATH", "/bin"},
                                                            {"HVD_RANK", "5"},
                                                            {"HVD_SIZE", "8"},
                                                            {"HVD_LOCAL_RANK", "1"},
                                                            {"HVD_LOCAL_SIZE", "4"},
                                                            {"HVD_CROSS_RANK", "1"},
                                                            {"HVD_CROSS_SIZE", "2"},
                                                            {"HVD_HOSTNAME", "node7"},
                                                            {"HVD_STORE", "tcp:127.0.0.1:4711"},
                                                            {"HVD_JOB_KEY", "c0ffee"},
                                                            {"HOROVOD_RANK", "5"},
                                                            {"HOROVOD_SIZE", "8"},
                                                            {"HOROVOD_LOCAL_RANK", "1"},
                                                            {"HOROVOD_LOCAL_SIZE", "4"},
                                                            {"HOROVOD_CROSS_RANK", "1"},
                                                            {"HOROVOD_CROSS_SIZE", "2"},
                                                            {"HOROVOD_HOSTNAME", "node7"},
                                                        });
}

TEST_CASE("a rank is told its host's address if there is one to tell") {
  CHECK_FALSE(environment_of_rank({}, {}, {}).contains("HVD_ADDRESS"));
  const HostRendezvous rendezvous{.hostname = "node7", .store = "", .job_key_hex = "", .address = "10.0.0.7"};
  CHECK(environment_of_rank({}, {}, rendezvous).at("HVD_ADDRESS") == "10.0.0.7");
}

}  // namespace
}  // namespace hvd::launcher
