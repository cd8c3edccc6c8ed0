#include "core/bootstrap/store_views.h"

#include <atomic>
#include <future>

#include "core/base/error.h"
#include "core/bootstrap/job_failure.h"
#include "core/bootstrap/memory_store.h"
#include "core/bootstrap/store_origin.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"

namespace hvd {
namespace {

using testing::failure;

TEST_CASE("a store that watches does what the other one does") {
  MemoryStore inner;
  int asked = 0;
  WatchfulStore store(inner, [&] { ++asked; });
  store.set("a", "1");
  CHECK(inner.get("a", deadline_after(1s)) == "1");
  CHECK(store.get("a", deadline_after(1s)) == "1");
  CHECK(store.add("n", 5) == 5);
  CHECK(asked == 0);
  store.check();
  CHECK(asked == 1);
  const TimePoint start = Clock::now();
  CHECK(failure([&] { store.get("b", deadline_after(600ms)); }).starts_with("timeout: waiting for the key 'b'"));
  CHECK(Clock::now() - start >= 600ms);
  CHECK(asked >= 2);  // every 250 ms, or as often as a busy machine lets it
  CHECK(asked <= 4);  // at 250, 500 and 600 ms at most
}

TEST_CASE("a wait ends with what comes, or with the alarm") {
  MemoryStore inner;
  std::atomic<bool> alarmed{false};
  WatchfulStore store(inner, [&] {
    if (alarmed) throw Aborted("rank 2 has failed");
  });
  auto waiting = std::async(std::launch::async, [&] { return store.get("late", deadline_after(30s)); });
  std::this_thread::sleep_for(kAlarmPeriod + 50ms);
  store.set("late", "it");
  CHECK(waiting.get() == "it");
  alarmed = true;
  const TimePoint start = Clock::now();
  CHECK(failure([&] { store.get("never", deadline_after(30s)); }) == "aborted: rank 2 has failed");
  CHECK(Clock::now() - start < 10s);
  PrefixStore prefixed(store, "epoch/0/");
  CHECK(failure([&] { prefixed.check(); }) == "aborted: rank 2 has failed");
}

// What a client of the origin would be answered.
class OriginStore : public Store {
 public:
  explicit OriginStore(StoreOrigin& origin) : origin_(origin) {}
  void set(const std::string&, const std::string&) override {}
  std::int64_t add(const std::string&, std::int64_t) override { return 0; }
  std::string get(const std::string& key, Deadline) override {
    std::optional<std::string> value;
    const auto id = origin_.ask({.operation = StoreOperation::get, .key = key},
                                [&](StatusCode, std::string_view text) { value = text; });
    origin_.forget(id);
    if (!value) throw Timeout("waiting for the key '" + key + "'");
    return *value;
  }

 private:
  StoreOrigin& origin_;
};

TEST_CASE("that the job has failed is said by who has its store, and heard by who asks") {
  StoreOrigin origin;
  OriginStore store(origin);
  CHECK_NOTHROW(check_job_failure(store, deadline_after(10ms)));
  set_job_failure(origin, "rank 2 on h2 has failed: killed by SIGKILL");
  CHECK(failure([&] { check_job_failure(store, deadline_after(10ms)); }) ==
        "aborted: rank 2 on h2 has failed: killed by SIGKILL");
}

TEST_CASE("a store that is gone does not say that the job has failed") {
  class Gone : public Store {
    void set(const std::string&, const std::string&) override {}
    std::int64_t add(const std::string&, std::int64_t) override { return 0; }
    std::string get(const std::string&, Deadline) override { throw PeerLost("the job's store"); }
  } store;
  CHECK_NOTHROW(check_job_failure(store, deadline_after(10ms)));
}

}  // namespace
}  // namespace hvd
