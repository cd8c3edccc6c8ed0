#include "launcher/inquiries.h"

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
  void ask_standings(std::uint64_t question, bool with_stacks) override {
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
  std::vector<std::vector<RankStanding>> results;

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

  Inquiries::Done remember() {
    return [this](std::vector<RankStanding> ranks) { results.push_back(std::move(ranks)); };
  }
};

Standing of(int rank) {
  Standing standing;
  standing.rank = rank;
  return standing;
}

TEST_CASE("an inquiry is over when all hosts have answered") {
  TwoHosts job;
  Inquiries inquiries(job.loop, job.plans, job.hosts);
  inquiries.ask(true, job.remember());
  REQUIRE(job.h1->questions.size() == 1);
  CHECK(job.h1->stacks);
  inquiries.answered(1, job.h2->questions[0], {of(1), of(0)});  // rank 0 is not its own
  CHECK(job.results.empty());
  inquiries.answered(1, job.h2->questions[0], {of(1)});  // once is enough
  inquiries.answered(0, job.h1->questions[0] + 1, {of(0)});
  CHECK(job.results.empty());
  inquiries.answered(0, job.h1->questions[0], {of(2)});
  REQUIRE(job.results.size() == 1);
  const auto& ranks = job.results[0];
  REQUIRE(ranks.size() == 3);
  CHECK(ranks[0].host == "h1");
  CHECK_FALSE(ranks[0].standing);
  CHECK(ranks[1].host == "h2");
  CHECK(ranks[1].standing);
  CHECK(ranks[2].standing);
  CHECK(inquiries.empty());
}

TEST_CASE("lost hosts are not waited for") {
  TwoHosts job;
  Inquiries inquiries(job.loop, job.plans, job.hosts);
  inquiries.ask(false, job.remember());
  inquiries.answered(0, job.h1->questions[0], {of(0), of(2)});
  inquiries.host_lost(1);
  REQUIRE(job.results.size() == 1);
  CHECK_FALSE(job.results[0][1].standing);
  inquiries.host_lost(0);
  inquiries.ask(false, job.remember());
  CHECK(job.results.size() == 2);
  CHECK(job.h1->questions.size() == 1);
}

TEST_CASE("silent hosts are waited for until the deadline") {
  TwoHosts job;
  Inquiries inquiries(job.loop, job.plans, job.hosts);
  inquiries.ask(false, job.remember());
  const TimePoint begin = Clock::now();
  while (!inquiries.empty()) job.loop.run_once(begin + 30s);
  CHECK(Clock::now() - begin >= kInquiryTime - 10ms);
  CHECK(job.results.size() == 1);
}

}  // namespace
}  // namespace hvd::launcher
