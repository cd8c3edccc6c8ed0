#include "core/bootstrap/store.h"

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store_protocol.h"
#include "core/bootstrap/store_server.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"

using namespace hvd;
using hvd::testing::failure;

namespace {

// Ranks that see the same map, each through its own Store.
class Job {
 public:
  virtual ~Job() = default;
  virtual Store& rank(int rank) = 0;
};

class ThreadsJob : public Job {
 public:
  explicit ThreadsJob(const Store& store = Store()) : store_(store) {}
  Store& rank(int) override { return store_; }

 private:
  Store store_;
};

class ProcessesJob : public Job {
 public:
  Store& rank(int rank) override {
    auto& store = stores_[static_cast<std::size_t>(rank)];
    if (!store) store = Store::connect(server_.address(), key_, rank, deadline_after(10s));
    return *store;
  }

 private:
  Log log_{"test", LogLevel::warning};
  JobKey key_ = JobKey::random();
  StoreServerThread server_{key_, "127.0.0.1", log_};
  std::array<std::optional<Store>, 16> stores_;
};

std::unique_ptr<Job> make_job() {
  const int kind = GENERATE(0, 1, 2, 3);
  CAPTURE(kind);
  if (kind == 0) return std::make_unique<ThreadsJob>();
  if (kind == 1) return std::make_unique<ProcessesJob>();
  if (kind == 2) return std::make_unique<ThreadsJob>(Store().with_prefix("epoch 1/"));
  return std::make_unique<ThreadsJob>(Store().with_alarm([] {}));
}

}  // namespace

TEST_CASE("what one rank sets the others get") {
  const auto job = make_job();
  const std::string value =
      GENERATE(std::string(), std::string("v"), std::string("a\0b", 3), std::string(3 << 20, 'x'));
  job->rank(0).set("key", value);
  CHECK(job->rank(1).get("key", deadline_after(10s)) == value);
  CHECK(job->rank(0).get("key", deadline_after(10s)) == value);
}

TEST_CASE("get waits for set") {
  const auto job = make_job();
  std::vector<std::future<std::string>> waiters;
  for (int rank = 1; rank <= 3; ++rank) {
    waiters.push_back(
        std::async(std::launch::async, [&store = job->rank(rank)] { return store.get("late", deadline_after(10s)); }));
  }
  CHECK(waiters.front().wait_for(20ms) == std::future_status::timeout);
  job->rank(0).set("other", "no");
  CHECK(waiters.front().wait_for(5ms) == std::future_status::timeout);
  job->rank(0).set("late", "yes");
  for (auto& waiter : waiters) CHECK(waiter.get() == "yes");
}

TEST_CASE("get names the key that did not come, and the store stays usable") {
  const auto job = make_job();
  Store& store = job->rank(0);
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(store.get("never", deadline_after(10ms)), Timeout);
    CHECK_THROWS_WITH(store.get("never", deadline_after(1ms)), Catch::Matchers::Contains("never"));
  }
  store.set("never", "at last");
  CHECK(store.get("never", deadline_after(10s)) == "at last");
  CHECK(store.add("n", 1) == 1);
}

TEST_CASE("add counts every rank once") {
  const auto job = make_job();
  constexpr int kRanks = 4, kRounds = 50;
  std::vector<std::future<std::int64_t>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&store = job->rank(rank)] {
      std::int64_t sum = 0;
      for (int i = 0; i < kRounds; ++i) sum += store.add("n", 1);
      return sum;
    }));
  }
  // Each value from 1 to 200 was seen by exactly one rank.
  std::int64_t total = 0;
  for (auto& rank : ranks) total += rank.get();
  CHECK(total == kRanks * kRounds * (kRanks * kRounds + 1) / 2);
  CHECK(job->rank(0).add("n", -1) == kRanks * kRounds - 1);
}

TEST_CASE("one store, several threads") {
  const auto job = make_job();
  Store& store = job->rank(0);
  std::vector<std::future<void>> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.push_back(std::async(std::launch::async, [&store, thread] {
      for (int i = 0; i < 30; ++i) {
        const std::string key = std::to_string(thread) + "/" + std::to_string(i);
        store.set(key, "value of " + key);
        if (store.get(key, deadline_after(10s)) != "value of " + key) throw std::logic_error("wrong value");
      }
    }));
  }
  for (auto& thread : threads) CHECK_NOTHROW(thread.get());
}

TEST_CASE("what is too long is refused, and the store stays usable") {
  const auto job = make_job();
  Store& store = job->rank(0);
  CHECK_THROWS_AS(store.set(std::string(5000, 'k'), "v"), InvalidArgument);
  CHECK_THROWS_AS(store.set("k", std::string((16 << 20) + 1, 'v')), InvalidArgument);
  CHECK_THROWS_AS(store.add(std::string(5000, 'k'), 1), InvalidArgument);
  store.set("k", "v");
  CHECK(store.get("k", deadline_after(10s)) == "v");
}

TEST_CASE("epochs do not see each other") {
  const Store store;
  const Store first = store.with_prefix("1/"), second = store.with_prefix("2/");
  first.set("key", "old");
  CHECK(first.add("n", 1) == 1);
  CHECK_THROWS_AS(second.get("key", deadline_after(1ms)), Timeout);
  CHECK(second.add("n", 1) == 1);
  CHECK(store.get("1/key", deadline_after(1ms)) == "old");
  CHECK(first.with_prefix("set 3/").add("n", 1) == 1);
  CHECK(store.add("1/set 3/n", 0) == 1);
}

TEST_CASE("an alarm is asked while a get waits, and only then") {
  int asked = 0;
  const Store inner;
  const Store store = inner.with_alarm([&] { ++asked; });
  store.set("a", "1");
  CHECK(inner.get("a", deadline_after(1s)) == "1");
  CHECK(store.get("a", deadline_after(1s)) == "1");
  CHECK(store.add("n", 5) == 5);
  CHECK(asked == 0);
  CHECK_FALSE(inner.alarm());
  store.alarm()();
  CHECK(asked == 1);
  const TimePoint start = Clock::now();
  CHECK(failure([&] { store.get("b", deadline_after(600ms)); }).starts_with("timeout: waiting for the key 'b'"));
  CHECK(Clock::now() - start >= 600ms);
  CHECK(asked >= 2);  // every 250 ms, or as often as a busy machine lets it
  CHECK(asked <= 4);  // at 250, 500 and 600 ms at most
}

TEST_CASE("a wait ends with what comes, or with any of the alarms") {
  std::atomic<bool> alarmed{false};
  const Store inner;
  const auto raise = [&] {
    if (alarmed) throw Aborted("rank 2 has failed");
  };
  const Store store = GENERATE(0, 1) == 0 ? inner.with_alarm(raise).with_alarm([] {}).with_prefix("epoch/0/")
                                          : inner.with_alarm([] {}).with_prefix("epoch/0/").with_alarm(raise);
  auto waiting = std::async(std::launch::async, [&] { return store.get("late", deadline_after(30s)); });
  std::this_thread::sleep_for(kAlarmPeriod + 50ms);
  store.set("late", "it");
  CHECK(waiting.get() == "it");
  alarmed = true;
  const TimePoint start = Clock::now();
  CHECK(failure([&] { store.get("never", deadline_after(30s)); }) == "aborted: rank 2 has failed");
  CHECK(Clock::now() - start < 10s);
  CHECK(failure([&] { store.alarm()(); }) == "aborted: rank 2 has failed");
}

TEST_CASE("whoever asks hears that the job has failed") {
  const Store store;
  CHECK_NOTHROW(check_job_failure(store, deadline_after(10ms)));
  store.set(kJobFailureKey, "rank 2 on h2 has failed: killed by SIGKILL");
  CHECK(failure([&] { check_job_failure(store, deadline_after(10ms)); }) ==
        "aborted: rank 2 on h2 has failed: killed by SIGKILL");
}

TEST_CASE("a store that is gone does not say that the job has failed") {
  const Log log("test", LogLevel::off);
  const JobKey key = JobKey::random();
  auto server = std::make_unique<StoreServerThread>(key, "127.0.0.1", log);
  const Store store = Store::connect(server->address(), key, 0, deadline_after(10s));
  server.reset();
  CHECK_NOTHROW(check_job_failure(store, deadline_after(10ms)));
}
