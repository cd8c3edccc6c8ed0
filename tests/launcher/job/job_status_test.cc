#include "launcher/job/job_status.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"

namespace hvd::launcher {

namespace {

// Remembers what it was asked.
class AskedHost : public Host {
 public:
  void start(const HostPlan&) override {}
  void signal_ranks(int) override {}
  void signal_all(int) override {}
  void write_input(int, std::string_view) override {}
  void hold(Stream, bool) override {}
  void query_status(std::uint64_t query_id, bool with_stacks) override {
    query_ids.push_back(query_id);
    stacks = with_stacks;
  }
  std::vector<pid_t> list_left() const override { return {}; }

  std::vector<std::uint64_t> query_ids;
  bool stacks = false;
};

// Ranks 0 and 2 on h1, rank 1 on h2.
struct TwoHosts {
  EventLoop loop;
  std::vector<HostPlan> plans{2};
  std::vector<std::unique_ptr<Host>> hosts;
  AskedHost *h1, *h2;
  std::vector<std::vector<StatusOfRank>> results;

  TwoHosts() {
    plans[0].name = "h1";
    plans[1].name = "h2";
    for (const int rank : {0, 1, 2}) {
      RankPlan plan;
      plan.numbers.rank = rank;
      plans[rank == 1 ? 1 : 0].ranks.push_back(plan);
    }
    for (AskedHost** const host : {&h1, &h2}) {
      auto fresh = std::make_unique<AskedHost>();
      *host = fresh.get();
      hosts.push_back(std::move(fresh));
    }
  }

  StatusQueries::Done remember() {
    return [this](std::vector<StatusOfRank> ranks) { results.push_back(std::move(ranks)); };
  }
};

RankStatus of(int rank) {
  RankStatus status;
  status.rank = rank;
  return status;
}

TEST_CASE("a query is over when all hosts have answered") {
  TwoHosts job;
  StatusQueries status_queries(job.loop, job.plans, job.hosts);
  status_queries.ask(true, job.remember());
  REQUIRE(job.h1->query_ids.size() == 1);
  CHECK(job.h1->stacks);
  status_queries.answered(1, job.h2->query_ids[0], {of(1), of(0)});  // rank 0 is not its own
  CHECK(job.results.empty());
  status_queries.answered(1, job.h2->query_ids[0], {of(1)});  // once is enough
  status_queries.answered(0, job.h1->query_ids[0] + 1, {of(0)});
  CHECK(job.results.empty());
  status_queries.answered(0, job.h1->query_ids[0], {of(2)});
  REQUIRE(job.results.size() == 1);
  const auto& ranks = job.results[0];
  REQUIRE(ranks.size() == 3);
  CHECK(ranks[0].host == "h1");
  CHECK_FALSE(ranks[0].status);
  CHECK(ranks[1].host == "h2");
  CHECK(ranks[1].status);
  CHECK(ranks[2].status);
  CHECK(status_queries.empty());
}

TEST_CASE("lost hosts are not waited for") {
  TwoHosts job;
  StatusQueries status_queries(job.loop, job.plans, job.hosts);
  status_queries.ask(false, job.remember());
  status_queries.answered(0, job.h1->query_ids[0], {of(0), of(2)});
  status_queries.host_lost(1);
  REQUIRE(job.results.size() == 1);
  CHECK_FALSE(job.results[0][1].status);
  status_queries.host_lost(0);
  status_queries.ask(false, job.remember());
  CHECK(job.results.size() == 2);
  CHECK(job.h1->query_ids.size() == 1);
}

TEST_CASE("silent hosts are waited for until the deadline") {
  TwoHosts job;
  StatusQueries status_queries(job.loop, job.plans, job.hosts);
  status_queries.ask(false, job.remember());
  const TimePoint begin = Clock::now();
  while (!status_queries.empty()) job.loop.run_once(begin + 30s);
  CHECK(Clock::now() - begin >= kStatusQueryTimeout - 10ms);
  CHECK(job.results.size() == 1);
}

FileDescriptor connect_to(const std::string& name) {
  FileDescriptor result(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  REQUIRE(connect(result.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0);
  return result;
}

class Asked {
 public:
  // What comes until the connection ends; `loop` runs meanwhile.
  std::string read_all(const FileDescriptor& connection) {
    std::string text;
    const Deadline deadline = deadline_after(30s);
    while (Clock::now() < deadline) {
      loop.run_once(deadline_after(1ms));
      char bytes[4096];
      ssize_t count = 0;
      while ((count = read(connection.get(), bytes, sizeof bytes)) > 0)
        text.append(bytes, static_cast<std::size_t>(count));
      if (count == 0 || errno == ECONNRESET) return text;
    }
    FAIL("the connection stays open");
    return text;
  }
  void say(const FileDescriptor& connection, const std::string& text) {
    static_cast<void>(send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL));
  }
  FileDescriptor come() {
    FileDescriptor connection = connect_to(status_socket_name(geteuid(), getpid()));
    loop.run_once(deadline_after(1s));
    return connection;
  }

  EventLoop loop;
  std::vector<std::string> queries;
  std::vector<StatusSocket::Answer> waiting;
  StatusSocket socket{loop, [this](const std::string& query, StatusSocket::Answer answer) {
                        queries.push_back(query);
                        if (query == "later") {
                          waiting.push_back(std::move(answer));
                        } else if (query == "nothing") {
                          answer("");
                        } else {
                          answer(query + "!");
                        }
                      }};
};

TEST_CASE("a line is a query, and its answer ends the connection") {
  Asked job;
  const FileDescriptor connection = job.come();
  job.say(connection, "stac");
  job.loop.run_once(deadline_after(10ms));
  job.say(connection, "ks\nand more");
  CHECK(job.read_all(connection) == "stacks!");
  CHECK(job.queries == std::vector<std::string>{"stacks"});
}

TEST_CASE("an answer may come late, be long, or find nobody") {
  Asked job;
  const FileDescriptor connection = job.come();
  {
    const FileDescriptor leaves = job.come();
    job.say(leaves, "later\n");
    job.loop.run_once(deadline_after(1s));
  }
  job.say(connection, "later\n");
  while (job.waiting.size() < 2) job.loop.run_once(deadline_after(1s));
  const std::string text(3'000'000, 'x');
  for (const auto& answer : job.waiting) answer(text);
  CHECK(job.read_all(connection) == text);
}

TEST_CASE("an empty answer ends the connection, too") {
  Asked job;
  const FileDescriptor connection = job.come();
  job.say(connection, "nothing\n");
  while (job.queries.empty()) job.loop.run_once(deadline_after(1s));
  char byte = 0;
  CHECK(read(connection.get(), &byte, 1) == 0);
}

TEST_CASE("who comes while there is no descriptor waits at the door, and does not keep the loop awake") {
  Asked job;
  const FileDescriptor connection = connect_to(status_socket_name(geteuid(), getpid()));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  int rounds = 0;
  for (const Deadline end = deadline_after(200ms); Clock::now() < end; ++rounds) job.loop.run_once(end);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(rounds < 10);
  job.say(connection, "stacks\n");
  CHECK(job.read_all(connection) == "stacks!");
}

TEST_CASE("an endless query and the ninth connection are refused") {
  Asked job;
  const FileDescriptor talks = job.come();
  job.say(talks, std::string(200, 'x'));
  CHECK(job.read_all(talks).empty());
  std::vector<FileDescriptor> connections;
  for (int i = 0; i < 9; ++i) connections.push_back(job.come());
  CHECK(job.read_all(connections.back()).empty());
  job.say(connections.front(), "x\n");
  CHECK(job.read_all(connections.front()) == "x!");
}

}  // namespace

}  // namespace hvd::launcher
