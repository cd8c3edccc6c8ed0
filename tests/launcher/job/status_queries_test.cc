#include "launcher/job/status_queries.h"

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
  void query_status(std::uint64_t question, bool with_stacks) override {
    questions.push_back(question);
    stacks = with_stacks;
  }
  std::vector<pid_t> list_left() const override { return {}; }

  std::vector<std::uint64_t> questions;
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
      plan.place.rank = rank;
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
  REQUIRE(job.h1->questions.size() == 1);
  CHECK(job.h1->stacks);
  status_queries.answered(1, job.h2->questions[0], {of(1), of(0)});  // rank 0 is not its own
  CHECK(job.results.empty());
  status_queries.answered(1, job.h2->questions[0], {of(1)});  // once is enough
  status_queries.answered(0, job.h1->questions[0] + 1, {of(0)});
  CHECK(job.results.empty());
  status_queries.answered(0, job.h1->questions[0], {of(2)});
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
  status_queries.answered(0, job.h1->questions[0], {of(0), of(2)});
  status_queries.host_lost(1);
  REQUIRE(job.results.size() == 1);
  CHECK_FALSE(job.results[0][1].status);
  status_queries.host_lost(0);
  status_queries.ask(false, job.remember());
  CHECK(job.results.size() == 2);
  CHECK(job.h1->questions.size() == 1);
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

}  // namespace
}  // namespace hvd::launcher
