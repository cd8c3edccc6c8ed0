// Jobs whose hosts are played by the test: it reports what happens there.
#include "launcher/job/job.h"

#include <deque>
#include <filesystem>
#include <fstream>

#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace hvd::launcher {
namespace {

// Remembers which processes it was told to start, and how often it was asked for their status.
class PlayedHost : public Host {
 public:
  void start(const HostPlan& plan) override {
    for (const RankPlan& rank : plan.ranks) started.push_back(rank.numbers.rank);
  }
  void signal_ranks(int) override {}
  void signal_all(int) override {}
  void write_input(int, std::string_view) override {}
  void hold(Stream, bool) override {}
  void query_status(std::uint64_t question, bool) override { questions.push_back(question); }
  std::vector<pid_t> list_left() const override { return {}; }

  std::vector<int> started;
  std::vector<std::uint64_t> questions;
};

// One process on each of the hosts h0, h1, ...; what happens there are the steps.
class PlayedJob {
 public:
  PlayedJob(int hosts, JobOptions options) : job_(std::move(options), hosts, loop_, signals_) {
    for (int host = 0; host < hosts; ++host) {
      HostPlan plan;
      plan.name = "h" + std::to_string(host);
      plan.rendezvous.address = "127.0.0.1";
      plan.ranks.push_back({.numbers = {.rank = host, .size = hosts, .local_size = 1}});
      auto fresh = std::make_unique<PlayedHost>();
      played.push_back(fresh.get());
      hosts_.plans.push_back(std::move(plan));
      hosts_.hosts.push_back(std::move(fresh));
    }
    hosts_.collect_children = [] {};
    hosts_.pause = [](bool) {};
    hosts_.set_failure = [this](const std::string& cause) { failures.push_back(cause); };
    hosts_.elastic_store = &elastic_store_;
  }

  // Each step is taken once the job waits for events.
  void then(std::function<void()> step) { steps_.push_back(std::move(step)); }

  int run() {
    timer_.set(Clock::now());
    return job_.run(std::move(hosts_));
  }

  void starts(int process) { job_.rank_started(process, 1000 + process); }
  void ends(int process, int exit_code) {
    for (const Stream stream : {Stream::output, Stream::errors}) job_.rank_wrote(process, stream, "");
    job_.rank_ended(process, {.value = exit_code}, {});
  }
  void arrives(int process) { elastic_store_.add(arrived_key(process), 1); }
  Job& job() { return job_; }

  std::vector<PlayedHost*> played;
  std::vector<std::string> failures;  // that the ranks were told

 private:
  void take_step() {
    if (steps_.empty()) return;
    const std::function<void()> step = std::move(steps_.front());
    steps_.pop_front();
    timer_.set(Clock::now());
    step();
  }

  SignalSource signals_;
  EventLoop loop_;
  StoreOrigin store_;
  ElasticStore elastic_store_{store_};
  Timer timer_{loop_, [this] { take_step(); }};
  std::deque<std::function<void()>> steps_;
  JobHosts hosts_;
  Job job_;
};

JobOptions elastic(int processes, Duration cooldown = 1h) {
  JobOptions options;
  options.elastic =
      MembershipOptions{.num_proc = processes, .max_np = processes, .cooldown_min = cooldown, .cooldown_max = cooldown};
  return options;
}

TEST_CASE("job: the loss of a host whose ranks have ended is no failure") {
  const CapturedStderr none;
  PlayedJob played(2, {});
  played.then([&] {
    for (const int rank : {0, 1}) played.starts(rank);
    played.ends(1, 0);
    played.job().host_lost(1, "silent");
    played.ends(0, 0);
    played.job().nothing_left(0);
  });
  CHECK(played.run() == 0);
  CHECK(played.failures == std::vector<std::string>{});
}

TEST_CASE("job: an elastic job asks a lost host for nothing") {
  const CapturedStderr none;
  PlayedJob played(2, elastic(2));
  played.then([&] {
    for (const int process : {0, 1}) {
      played.starts(process);
      played.arrives(process);
    }
    played.job().host_lost(1, "silent");
    played.job().stalled(0, true);
    played.job().statuses(0, played.played[0]->questions.at(0), {});
    played.arrives(0);
    played.ends(0, 0);
    played.job().nothing_left(0);
  });
  CHECK(played.run() == 0);
  CHECK(played.played[1]->questions.empty());
}

TEST_CASE("job: a process that failed in an earlier epoch is not blamed for a later failure") {
  const CapturedStderr errors;
  const bool next_epoch_begins = GENERATE(false, true);  // before the hosts with the other processes are lost
  PlayedJob played(3, elastic(3));
  played.then([&] {
    for (const int process : {0, 1, 2}) {
      played.starts(process);
      played.arrives(process);
    }
    played.ends(0, 7);
    for (const int process : {1, 2}) {
      if (next_epoch_begins) played.arrives(process);
    }
    for (const int host : {1, 2}) played.job().host_lost(host, "silent");
    played.job().nothing_left(0);
  });
  CHECK(played.run() == 1);
  CHECK(errors.count("process 0 on h0 failed") == 0);
}

TEST_CASE("job: a process that is started while the job runs may have no output file") {
  const testing::TemporaryFolder folder;
  const CapturedStderr errors;
  JobOptions options = elastic(2, 0s);
  options.output.directory = folder / "logs";
  PlayedJob played(2, options);
  played.then([&] {
    for (const int process : {0, 1}) {
      played.starts(process);
      played.arrives(process);
    }
    std::filesystem::rename(folder / "logs", folder / "moved");
    std::ofstream(folder / "logs") << "a file, where no folder can be created\n";
    played.ends(1, 7);
  });
  played.then([&] {
    REQUIRE(played.played[1]->started == std::vector<int>{1, 2});
    played.starts(2);
    played.job().rank_wrote(2, Stream::output, "shown\n");
    for (const int process : {0, 2}) {
      played.arrives(process);
      played.ends(process, 0);
    }
    for (const int host : {0, 1}) played.job().nothing_left(host);
  });
  CHECK(played.run() == 0);
  CHECK(errors.count("the output of process 2 is not saved") == 1);
}

}  // namespace
}  // namespace hvd::launcher
