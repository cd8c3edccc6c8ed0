// Random histories of three workers and a shard, over connections that lose what was asked or answered, with workers
// and servers that start again, against a model that applies each update when it reaches the shard first.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "parameters/shard.h"
#include "tests/parameters/shard_caller.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

constexpr std::uint32_t kHistoryWorkers = 3;
constexpr std::uint64_t kKeys = 4;   // that all workers push to; behind them each has one of its own
constexpr std::uint32_t kBound = 1;  // of the bounded table, which workers push to, too
constexpr std::uint16_t kAsynchronous = 0, kBounded = 1, kSynchronous = 2;

// What the rows must be. Values are small whole numbers, so that their order makes no difference.
class HistoryModel {
 public:
  struct Worker {
    std::uint64_t incarnation = 0;
    std::uint32_t clock = 0;
  };

  // A request of the current incarnation has reached the shard.
  void reach(const PsRequest& request, std::uint64_t key, float value) {
    if (!seen_.emplace(request.worker, request.incarnation, request.sequence).second) return;
    Worker& worker = workers_[request.worker];
    if (request.op == PsOp::clock) {
      worker.clock = std::max(worker.clock, request.clock);
      settle();
    } else if (request.table == kSynchronous) {
      pending_[{std::max(request.clock, settled_), request.worker}].emplace_back(key, value);
    } else {
      rows_[{request.table, key}] += value;
    }
  }

  // The clock at which a new incarnation begins.
  std::uint32_t begin(std::uint32_t number, std::uint64_t incarnation) {
    Worker& worker = workers_[number];
    const bool is_first = worker.incarnation == 0;
    std::uint32_t lowest = ~0u;
    for (std::uint32_t other = 0; other < kHistoryWorkers; ++other) {
      if (other != number) lowest = std::min(lowest, workers_[other].clock);
    }
    worker = {.incarnation = incarnation, .clock = is_first && settled_ == 0 ? 0 : lowest};
    std::erase_if(pending_,
                  [&](const auto& one) { return one.first.second == number && one.first.first >= worker.clock; });
    settle();
    return worker.clock;
  }

  float row(std::uint16_t table, std::uint64_t key) const {
    const auto found = rows_.find({table, key});
    return found == rows_.end() ? 0 : found->second;
  }
  std::uint32_t min_clock() const { return std::min({workers_[0].clock, workers_[1].clock, workers_[2].clock}); }

 private:
  void settle() {
    settled_ = std::max(settled_, min_clock());
    for (auto it = pending_.begin(); it != pending_.end() && it->first.first < settled_; it = pending_.erase(it)) {
      for (const auto& [key, value] : it->second) rows_[{kSynchronous, key}] += value;
    }
  }

  std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> seen_;
  std::map<std::pair<std::uint16_t, std::uint64_t>, float> rows_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::pair<std::uint64_t, float>>> pending_;
  Worker workers_[kHistoryWorkers];
  std::uint32_t settled_ = 0;
};

class History {
 public:
  explicit History(unsigned seed) : dice_(seed), shard_(std::make_unique<Shard>(0, 1, 0)) {
    for (std::uint32_t w = 0; w < kHistoryWorkers; ++w) start_worker(w);
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      const std::uint32_t w = roll(kHistoryWorkers);
      switch (roll(workers_[w].unanswered.size() > 12 ? 11 : 16)) {
        case 0: break_connection(w); break;
        case 1:
          if (roll(4) == 0) start_worker(w);
          break;
        case 2:
          if (roll(8) == 0) start_server();
          break;
        case 3:
        case 4:
        case 5: deliver(w, false); break;  // and its answer is lost, or late
        case 6:
        case 7:
        case 8:
        case 9: deliver(w, true); break;
        case 10: deliver_old(); break;
        case 11:
        case 12: send_pull(w); break;
        case 13: send(w, {.op = PsOp::clock, .clock = ++workers_[w].clock}, 0, 0); break;
        default: send_push(w);
      }
    }
    finish();
  }

  int pulls() const { return pulls_; }
  int repeated() const { return repeated_; }

 private:
  struct Sent {
    PsRequest request;
    std::uint64_t key = 0;
    float value = 0;
    float own = 0;  // pull of a worker's own key: what it must be at least
  };
  struct Worker {
    std::uint64_t incarnation = 0, sequence = 0;
    std::uint32_t clock = 0;
    float own[2] = {0, 0};  // pushed to its own key of the tables that apply at once, by this incarnation
    std::deque<Sent> unanswered{};
    std::size_t reached = 0;  // of these, on this connection
  };

  std::uint32_t roll(std::uint32_t sides) { return dice_() % sides; }

  void start_worker(std::uint32_t w) {
    Worker& worker = workers_[w];
    for (; !worker.unanswered.empty(); worker.unanswered.pop_front()) old_.push_back(worker.unanswered.front());
    worker = {.incarnation = worker.incarnation + 1};
    worker.clock = greet(w);
    REQUIRE(worker.clock == model_.begin(w, worker.incarnation));
    for (const std::uint16_t table : {kAsynchronous, kBounded}) worker.own[table] = model_.row(table, kKeys + w);
  }

  std::uint32_t greet(std::uint32_t w) {
    const PsHello hello{.workers = kHistoryWorkers};
    const auto answer = apply_to(*shard_, header(w, {.op = PsOp::hello}), std::as_bytes(std::span(&hello, 1))).header;
    static const std::vector<TableSpec> tables = {{.name = "a", .consistency = Consistency::asynchronous},
                                                  {.name = "b", .consistency = Consistency::bounded, .bound = kBound},
                                                  {.name = "s", .consistency = Consistency::synchronous}};
    for (TableSpec spec : tables) {
      spec.optimizer.rule = UpdateRule::add;
      ByteWriter to;
      to.put(spec);
      apply_to(*shard_, header(w, {.op = PsOp::open_table}), to.take());
    }
    return static_cast<std::uint32_t>(answer.version);
  }

  PsRequest header(std::uint32_t w, PsRequest request) const {
    request.worker = w;
    request.incarnation = workers_[w].incarnation;
    return request;
  }

  void send(std::uint32_t w, PsRequest request, std::uint64_t key, float value) {
    Worker& worker = workers_[w];
    request = header(w, request);
    request.sequence = ++worker.sequence;
    if (request.op != PsOp::clock) request.clock = worker.clock;
    const bool is_own = key == kKeys + w && request.table != kSynchronous;
    if (is_own && request.op != PsOp::pull) worker.own[request.table] += value;
    worker.unanswered.push_back({request, key, value, is_own ? worker.own[request.table] : 0});
  }

  std::uint64_t any_key(std::uint32_t w) { return roll(3) == 0 ? kKeys + w : roll(kKeys); }

  void send_push(std::uint32_t w) {
    const auto table = static_cast<std::uint16_t>(roll(3));
    const bool with_rows = table != kSynchronous && roll(3) == 0;
    send(w, {.op = with_rows ? PsOp::push_pull : PsOp::push, .table = table, .rows = 1}, any_key(w),
         static_cast<float>(1 + roll(9)));
  }

  void send_pull(std::uint32_t w) {
    send(w, {.op = PsOp::pull, .table = static_cast<std::uint16_t>(roll(3)), .rows = 1}, any_key(w), 0);
  }

  // The next request reaches the shard, unless it has to wait. With its answer, earlier ones arrive, too.
  bool deliver(std::uint32_t w, bool with_answer) {
    Worker& worker = workers_[w];
    if (worker.reached == worker.unanswered.size()) return false;
    const Sent sent = worker.unanswered[worker.reached];
    if (!shard_->is_ready(sent.request)) {
      REQUIRE(sent.request.table != kAsynchronous);
      return false;
    }
    ++worker.reached;
    const auto answer = apply(sent);
    if (is_numbered(sent.request.op)) model_.reach(sent.request, sent.key, sent.value);
    REQUIRE(answer.header.sequence == sent.request.sequence);
    REQUIRE(answer.header.min_clock == model_.min_clock());
    if (!answer.payload.empty()) check_rows(sent, answer.rows()[0]);
    if (with_answer) {
      for (; worker.reached > 0; --worker.reached) worker.unanswered.pop_front();
    }
    return true;
  }

  void check_rows(const Sent& sent, float value) {
    ++pulls_;
    REQUIRE(value == model_.row(sent.request.table, sent.key));
    REQUIRE(value >= sent.own);  // its own pushes are there
    const std::uint32_t bound = sent.request.table == kBounded ? kBound : 0;
    if (sent.request.table != kAsynchronous) REQUIRE(model_.min_clock() + bound >= sent.request.clock);
  }

  ShardAnswer apply(const Sent& sent) {
    if (sent.request.op == PsOp::clock) return apply_to(*shard_, sent.request);
    const std::vector<std::uint64_t> keys = {sent.key};
    const std::vector<float> values = {sent.value};
    if (sent.request.op == PsOp::pull) return apply_to(*shard_, sent.request, payload_of(keys));
    return apply_to(*shard_, sent.request, payload_of(keys, values));
  }

  // What an earlier process of a worker has sent arrives late, and is refused.
  void deliver_old() {
    if (old_.empty()) return;
    const Sent sent = old_.front();
    old_.pop_front();
    if (shard_->is_ready(sent.request)) REQUIRE_THROWS_AS(apply(sent), Aborted);
  }

  // What has not been answered is sent again, in order.
  void break_connection(std::uint32_t w) {
    Worker& worker = workers_[w];
    repeated_ += static_cast<int>(worker.reached);
    worker.reached = 0;
    greet(w);
  }

  // From its state as of now.
  void start_server() {
    auto next = std::make_unique<Shard>(0, 1, 0);
    add_state(*next, state_of(*shard_));
    shard_ = std::move(next);
    for (std::uint32_t w = 0; w < kHistoryWorkers; ++w) break_connection(w);
  }

  // Everybody comes to the same clock, and everything is answered.
  void finish() {
    std::uint32_t last = 0;
    for (const Worker& worker : workers_) last = std::max(last, worker.clock + 1);
    for (std::uint32_t w = 0; w < kHistoryWorkers; ++w) {
      send(w, {.op = PsOp::clock, .clock = last}, 0, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (std::uint32_t w = 0; w < kHistoryWorkers; ++w) any = deliver(w, true) || any;
    }
    for (const Worker& worker : workers_) REQUIRE(worker.reached == worker.unanswered.size());
    for (const std::uint16_t table : {kAsynchronous, kBounded, kSynchronous}) {
      for (std::uint64_t key = 0; key < kKeys + kHistoryWorkers; ++key) {
        const Sent pull{.request = header(0, {.op = PsOp::pull, .table = table, .clock = last, .rows = 1}), .key = key};
        REQUIRE(shard_->is_ready(pull.request));
        REQUIRE(apply(pull).rows()[0] == model_.row(table, key));
      }
    }
  }

  std::mt19937 dice_;
  std::unique_ptr<Shard> shard_;
  HistoryModel model_;
  Worker workers_[kHistoryWorkers];
  std::deque<Sent> old_;  // of incarnations that are gone
  int pulls_ = 0, repeated_ = 0;
};

TEST_CASE("whatever is lost, repeated or started again, each update is applied once") {
#if defined(HVD_SANITIZED)
  constexpr unsigned kHistories = 100;
#else
  constexpr unsigned kHistories = 5000;
#endif
  int pulls = 0, repeated = 0;
  for (unsigned seed = 0; seed < kHistories; ++seed) {
    INFO("seed " << seed);
    History history(seed);
    history.run(60);
    pulls += history.pulls();
    repeated += history.repeated();
  }
  CHECK(pulls > static_cast<int>(kHistories));
  CHECK(repeated > static_cast<int>(kHistories));
}

}  // namespace
}  // namespace hvd
