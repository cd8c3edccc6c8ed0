// How operations end: once, on the bucket that has their last tensor, or with the error of the first that fails.
#include "core/execution/executor.h"

#include <functional>

#include "core/base/error.h"
#include "core/operation/operation_table.h"
#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

// Does with a call what the test says.
class FakeBackend : public Backend {
 public:
  using Behaviour = std::function<void(const CollectiveCall&)>;
  explicit FakeBackend(Behaviour& behaviour) : behaviour_(behaviour) {}

  const char* name() const override { return "fake"; }
  int score(const CollectiveCall&) const override { return 1; }
  void run(const CollectiveCall& call) override { behaviour_(call); }
  bool can_be_asked(const ProcessSet&) const override { return true; }

 private:
  Behaviour& behaviour_;
};

[[noreturn]] void refuse(const CollectiveCall&) { throw Unsupported("not this"); }
[[noreturn]] void differ(const CollectiveCall&) { throw Mismatch("not alike"); }
[[noreturn]] void lose(const CollectiveCall&) { throw PeerLost("rank 1 is lost"); }
[[noreturn]] void decline(const CollectiveCall&) { throw Declined(); }

// Rank 0 of a set of two.
class ExecutingRank {
 public:
  // An operation that this rank has submitted. The response to it is its own request.
  Operation& submit(const OperationSpec& spec) {
    OperationMemory memory;
    memory.tensors.resize(spec.tensors.size(), {.input = memory_, .output = memory_});
    memory.allocates_outputs = differs_by_rank(spec.collective);
    OperationReferences references = names_.take(spec, std::move(memory));
    submitted_.push_back(std::move(references.caller));
    return pending_.insert(std::move(references.engine));
  }

  Response response_to(const OperationSpec& spec) const {
    Response response;
    response.spec = spec;
    response.contributing = kSet.size();
    if (spec.collective == Collective::allgather) response.rows.resize(spec.tensors.size(), {2, 2});
    return response;
  }

  // The buckets of what all ranks are ready for, with this rank's operations.
  std::vector<Bucket> plan(const std::vector<Response>& responses, std::int64_t threshold) const {
    std::vector<Bucket::Item> ready;
    for (const Response& response : responses) ready.push_back({&response, pending_.claim(response.spec.name)});
    return plan_buckets(ready, threshold);
  }

  Executor& executor() { return executor_; }
  PendingOperations& pending() { return pending_; }
  const Metrics& metrics() const { return *metrics_; }
  void behave(FakeBackend::Behaviour behaviour) { behaviour_ = std::move(behaviour); }

 private:
  static inline const ProcessSet kSet{.id = 0, .ranks = {0, 1}};

  std::vector<std::unique_ptr<Backend>> backends() {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<FakeBackend>(behaviour_));
    return backends;
  }

  float memory_[6] = {};
  FakeBackend::Behaviour behaviour_ = [](const CollectiveCall&) {};
  const Config config_;
  const Log log_{"test", LogLevel::off};
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  Timeline timeline_{log_};
  OperationTable names_{metrics_};
  PendingOperations pending_{*metrics_};
  std::vector<CallerReference> submitted_;
  Executor executor_{backends(), kSet, 0, config_, *metrics_, timeline_};
};

OperationSpec group(const std::string& name, Collective collective, std::size_t tensors) {
  OperationSpec group = make_spec(collective, name);
  group.tensors.resize(tensors, group.tensors.front());
  return group;
}

constexpr std::int64_t kTensor = 24;  // bytes of one in these tests

}  // namespace

TEST_CASE("Unsupported and Mismatch end the operations of their bucket only") {
  ExecutingRank rank;
  Operation& small = rank.submit(allreduce("small"));
  Operation& other = rank.submit(broadcast("other", 0));
  const std::vector<Response> responses{rank.response_to(small.spec), rank.response_to(other.spec)};
  std::vector<Bucket> buckets = rank.plan(responses, kTensor);
  const bool unsupported = GENERATE(true, false);
  rank.behave([unsupported](const CollectiveCall& call) {
    if (call.collective != Collective::allreduce) return;
    unsupported ? refuse(call) : differ(call);
  });
  CHECK(rank.executor().run(buckets, rank.pending(), DrivingThread::engine));
  CHECK(small.completion.status().code() == (unsupported ? StatusCode::unsupported : StatusCode::mismatch));
  CHECK(other.completion.status().ok());
  CHECK(other.completion.done());
  CHECK(rank.pending().empty());
}

TEST_CASE("A grouped operation ends with its last tensor") {
  ExecutingRank rank;
  Operation& grouped = rank.submit(group("group", Collective::allreduce, 3));
  const std::vector<Response> responses{rank.response_to(grouped.spec)};
  std::vector<Bucket> buckets = rank.plan(responses, kTensor);
  REQUIRE(buckets.size() == 3);
  int calls = 0;
  rank.behave([&](const CollectiveCall& call) {
    CHECK_FALSE((++calls, grouped.completion.done()));
    CHECK(call.driving_thread == DrivingThread::engine);
  });
  CHECK(rank.executor().run(buckets, rank.pending(), DrivingThread::engine));
  CHECK(calls == 3);
  CHECK(grouped.completion.done());
  CHECK(rank.metrics().operations.value() == 1);
}

TEST_CASE("A grouped operation that fails ends once, and what is left of it is not performed") {
  const Collective collective = GENERATE(Collective::allreduce, Collective::allgather);
  ExecutingRank rank;
  const OperationSpec spec = group("group", collective, 4);
  const OperationSpec alone = make_spec(collective, "alone");
  Operation& grouped = rank.submit(spec);
  Operation& other = rank.submit(alone);
  const std::vector<Response> responses{rank.response_to(spec), rank.response_to(alone)};
  std::vector<Bucket> buckets = rank.plan(responses, kTensor);
  REQUIRE(buckets.size() == 5);
  int calls = 0;
  rank.behave([&](const CollectiveCall& call) {
    if (++calls == 2) refuse(call);
  });
  CHECK(rank.executor().run(buckets, rank.pending(), DrivingThread::engine));
  CHECK(calls == 3);
  CHECK(grouped.completion.status().code() == StatusCode::unsupported);
  CHECK(other.completion.done());
  CHECK(other.completion.status().ok());
  CHECK(rank.metrics().operations.value() == 2);
  CHECK(rank.pending().empty());
}

TEST_CASE("Of a bucket with tensors of a failed group the others are performed") {
  ExecutingRank rank;
  const OperationSpec spec = group("group", Collective::allreduce, 3);
  Operation& grouped = rank.submit(spec);
  Operation& other = rank.submit(allreduce("other"));
  const std::vector<Response> responses{rank.response_to(spec), rank.response_to(other.spec)};
  std::vector<Bucket> buckets = rank.plan(responses, 2 * kTensor);
  REQUIRE(buckets.size() == 2);
  REQUIRE(buckets[1].items.size() == 2);
  std::vector<std::size_t> pieces;
  rank.behave([&](const CollectiveCall& call) {
    pieces.push_back(call.pieces.size());
    if (pieces.size() == 1) differ(call);
  });
  CHECK(rank.executor().run(buckets, rank.pending(), DrivingThread::engine));
  CHECK(pieces == std::vector<std::size_t>{2, 1});
  CHECK(grouped.completion.status().code() == StatusCode::mismatch);
  CHECK(other.completion.done());
  CHECK(other.completion.status().ok());
}

TEST_CASE("A bucket that another rank declines leaves its operations pending") {
  ExecutingRank rank;
  Operation& operation = rank.submit(allreduce("x"));
  const std::vector<Response> responses{rank.response_to(operation.spec)};
  std::vector<Bucket> buckets = rank.plan(responses, kTensor);
  rank.behave(decline);
  CHECK_FALSE(rank.executor().run(buckets, rank.pending(), DrivingThread::engine, EntryMode::asking));
  CHECK_FALSE(operation.completion.done());
  CHECK(rank.pending().find("x") == &operation);
}

TEST_CASE("However often the coordinator answers, an operation is performed once") {
  ExecutingRank rank;
  Operation& operation = rank.submit(allreduce("x"));
  const std::vector<Response> responses(2, rank.response_to(operation.spec));
  std::vector<Bucket> buckets = rank.plan(responses, 0);
  REQUIRE(buckets.size() == 2);
  CHECK(buckets[0].items[0].own == &operation);
  CHECK(buckets[1].items[0].own == nullptr);
  CHECK(rank.executor().run(buckets, rank.pending(), DrivingThread::engine));
  CHECK(rank.metrics().operations.value() == 1);
}

TEST_CASE("A direct call ends like any other") {
  ExecutingRank rank;
  const OperationSpec spec = allreduce("x");
  const std::vector<Response> responses{rank.response_to(spec)};
  const std::vector<Bucket> buckets = plan_buckets({&responses.front()}, 0);
  DirectCall direct = rank.executor().make_direct(buckets.front());
  float memory[6] = {};
  const TensorView tensor{.data = memory, .shape = spec.tensors.front().shape};
  const Call call{.name = "x", .inputs = {&tensor, 1}, .outputs = {&tensor, 1}};
  REQUIRE(direct.fits(call));
  const TensorMemory place{.input = memory, .output = memory};
  std::vector<std::uint64_t> sequences;
  const auto behaving = [&](FakeBackend::Behaviour then) {
    rank.behave([&sequences, then = std::move(then)](const CollectiveCall& performed) {
      sequences.push_back(performed.sequence);
      then(performed);
    });
  };

  behaving(refuse);
  CHECK_THROWS_AS(rank.executor().run(direct, place), Unsupported);
  behaving(differ);
  CHECK_THROWS_AS(rank.executor().run(direct, place), Mismatch);
  behaving(decline);
  CHECK_FALSE(rank.executor().run(direct, place));
  behaving([&](const CollectiveCall& performed) {
    CHECK(performed.pieces.front().input == memory);
    CHECK(performed.driving_thread == DrivingThread::caller);
  });
  CHECK(rank.executor().run(direct, place));
  behaving(lose);
  CHECK_THROWS_AS(rank.executor().run(direct, place), PeerLost);
  // A declined call has not taken place.
  CHECK(sequences == std::vector<std::uint64_t>{1, 2, 3, 3, 4});
}
