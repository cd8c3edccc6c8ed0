// Servers and workers as threads of one process, over shared memory and over TCP: what is pushed is there, once.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"
#include "parameters/client.h"
#include "parameters/server.h"
#include "parameters/shard_directory.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace hvd {
namespace {

// The servers of a job, each in a thread.
class Servers {
 public:
  explicit Servers(int count, bool shares_memory = true, ServerOptions options = {}) : servers_(count) {
    shares_memory_ = shares_memory;
    options.servers = count;
    parts_ = options.parts;
    options.shares_memory = shares_memory;
    options.host_key = "here";
    for (int i = 0; i < count; ++i) start(i, options);
  }
  ~Servers() {
    for (int i = 0; i < servers_; ++i) stop(i);
  }

  void start(int i, ServerOptions options) {
    options.server = i;
    options.servers = servers_;
    options.host_key = "here";
    options.shares_memory = shares_memory_;
    running_.resize(static_cast<std::size_t>(servers_));
    Running& running = running_[static_cast<std::size_t>(i)];
    running.server = std::make_unique<ParameterServer>(options, store, key, log);
    running.thread = start_thread("server", [&running] { running.server->run(); });
  }

  void stop(int i) {
    Running& running = running_[static_cast<std::size_t>(i)];
    if (!running.server) return;
    running.server->stop();
    running.thread.join();
    running.server.reset();
  }

  // Until it has ended by itself.
  void await_end(int i) {
    Running& running = running_[static_cast<std::size_t>(i)];
    running.thread.join();
    running.server.reset();
  }

  std::unique_ptr<ParameterClient> worker(int worker, int workers, int copies = 1, Duration start_timeout = 20s) {
    const WorkerOptions options{.worker = worker,
                                .workers = workers,
                                .servers = servers_,
                                .copies = copies,
                                .parts = parts_,
                                .start_timeout = start_timeout,
                                .shares_memory = shares_memory_,
                                .host_key = "here",
                                .wait = kOversubscribedPolicy};
    return std::make_unique<ParameterClient>(options, store, key, log);
  }

  Store store;
  JobKey key = JobKey::random();
  Log log{"test", LogLevel::error};

 private:
  struct Running {
    std::unique_ptr<ParameterServer> server;
    std::thread thread;
  };
  int servers_;
  int parts_ = 1;
  bool shares_memory_ = true;
  std::vector<Running> running_;
};

TableSpec sparse(const std::string& name, std::uint32_t width, OptimizerSpec optimizer = {.rule = UpdateRule::add}) {
  TableSpec spec;
  spec.name = name;
  spec.width = width;
  spec.optimizer = optimizer;
  return spec;
}

constexpr Duration kTestTimeout = 20s;

// Not REQUIRE(): threads of a test call this, too.
void answered(ParameterClient& worker, const ParameterClient::CallReference& call) {
  if (!worker.wait(call, deadline_after(kTestTimeout))) throw Timeout("no answer");
}

std::vector<float> pulled(ParameterClient& worker, int table, const std::vector<std::uint64_t>& keys) {
  std::vector<float> rows(keys.size() * worker.spec(table).width, -1.0f);
  answered(worker, worker.pull(table, {.keys = keys, .rows = rows.data()}));
  return rows;
}

void pushed(ParameterClient& worker, int table, const std::vector<std::uint64_t>& keys,
            const std::vector<float>& gradients) {
  answered(worker, worker.push(table, {.keys = keys, .gradients = gradients.data()}));
}

template <typename Body>
StatusCode code_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return StatusCode::ok;
}

TEST_CASE("rows are what was pushed to them") {
  const bool shares_memory = GENERATE(true, false);
  const int servers = GENERATE(1, 3);
  Servers job(servers, shares_memory);
  const auto worker = job.worker(0, 1);
  const int table = worker->open(sparse("rows", 3));
  const std::vector<std::uint64_t> keys = {7, 1, 1000000007, 0, 42, 7};
  std::vector<float> gradients(keys.size() * 3);
  std::iota(gradients.begin(), gradients.end(), 1.0f);
  pushed(*worker, table, keys, gradients);
  const std::vector<float> rows = pulled(*worker, table, {42, 7, 5});
  CHECK(rows == std::vector<float>{13, 14, 15, 1 + 16, 2 + 17, 3 + 18, 0, 0, 0});
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("calls overlap, and large ones go in parts") {
  const bool shares_memory = GENERATE(true, false);
  Servers job(2, shares_memory);
  const auto worker = job.worker(0, 1);
  const int table = worker->open(sparse("large", 256));
  std::vector<std::uint64_t> keys(5000);
  std::iota(keys.begin(), keys.end(), std::uint64_t{100});
  std::vector<float> ones(keys.size() * 256, 1.0f), rows(ones.size());
  std::vector<ParameterClient::CallReference> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(worker->push(table, {.keys = keys, .gradients = ones.data()}));
  calls.push_back(worker->pull(table, {.keys = keys, .rows = rows.data()}));
  for (const auto& call : calls) REQUIRE(worker->wait(call, deadline_after(kTestTimeout)));
  CHECK(std::ranges::all_of(rows, [](float value) { return value == 4.0f; }));
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a dense table is pulled and pushed whole") {
  const int servers = GENERATE(1, 2, 3);
  Servers job(servers);
  const auto worker = job.worker(0, 1);
  TableSpec spec = sparse("dense", 1000, {.rule = UpdateRule::sgd, .learning_rate = 0.5f});
  spec.dense = true;
  spec.rows = 7;
  const int table = worker->open(spec);
  std::vector<float> gradients(6500), rows(6500);
  std::iota(gradients.begin(), gradients.end(), 0.0f);
  const RowsCall whole{.is_whole = true, .gradients = gradients.data(), .rows = rows.data(), .values = rows.size()};
  REQUIRE(worker->wait(worker->push_pull(table, whole), deadline_after(kTestTimeout)));
  for (std::size_t i = 0; i < rows.size(); ++i) REQUIRE(rows[i] == -0.5f * gradients[i]);
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a synchronous table adds up in the order of workers, and waits for all") {
  constexpr int kWorkers = 3, kSteps = 20;
  Servers job(2);
  std::vector<std::vector<float>> seen(kWorkers);
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      const auto worker = job.worker(w, kWorkers);
      TableSpec spec = sparse("sync", 2, {.rule = UpdateRule::sgd, .learning_rate = 0.1f});
      spec.consistency = Consistency::synchronous;
      spec.average = true;
      const int table = worker->open(spec);
      const std::vector<std::uint64_t> keys = {1, 2, 3};
      for (int step = 0; step < kSteps; ++step) {
        std::vector<float> gradients(6);
        for (std::size_t i = 0; i < 6; ++i)
          gradients[i] = 0.1f * static_cast<float>(w + 1) + 0.01f * static_cast<float>(step);
        pushed(*worker, table, keys, gradients);
        worker->advance_clock();
        const auto rows = pulled(*worker, table, keys);
        seen[static_cast<std::size_t>(w)].insert(seen[static_cast<std::size_t>(w)].end(), rows.begin(), rows.end());
      }
      worker->wait(worker->leave(), deadline_after(kTestTimeout));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(seen[0] == seen[1]);
  CHECK(seen[0] == seen[2]);
  float expected = 0;
  for (int step = 0; step < kSteps; ++step) {
    float sum = 0;
    for (int w = 0; w < kWorkers; ++w) sum += 0.1f * static_cast<float>(w + 1) + 0.01f * static_cast<float>(step);
    expected = std::fmaf(static_cast<float>(static_cast<double>(sum) * (1.0 / kWorkers)), -0.1f, expected);
    CHECK(seen[0][static_cast<std::size_t>(step) * 6] == expected);
  }
}

TEST_CASE("a worker is at most as far ahead as its table allows") {
  Servers job(1);
  const auto slow = job.worker(0, 2), fast = job.worker(1, 2);
  TableSpec spec = sparse("bounded", 1);
  spec.consistency = Consistency::bounded;
  spec.bound = 2;
  const int table = fast->open(spec);
  slow->open(spec);
  const std::vector<std::uint64_t> keys = {5};
  std::vector<float> row(1);
  for (int clock = 0; clock < 2; ++clock) {
    fast->advance_clock();
    CHECK(fast->wait(fast->pull(table, {.keys = keys, .rows = row.data()}), deadline_after(kTestTimeout)));
  }
  fast->advance_clock();
  const auto waiting = fast->pull(table, {.keys = keys, .rows = row.data()});
  CHECK_FALSE(fast->wait(waiting, deadline_after(50ms)));
  slow->advance_clock();
  CHECK(fast->wait(waiting, deadline_after(kTestTimeout)));
  CHECK(fast->min_clock() == 1);
  slow->wait(slow->leave(), deadline_after(kTestTimeout));  // nobody waits for it any longer
  for (int clock = 0; clock < 5; ++clock) fast->advance_clock();
  CHECK(fast->wait(fast->pull(table, {.keys = keys, .rows = row.data()}), deadline_after(kTestTimeout)));
  fast->wait(fast->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("workers that disagree about a table are told") {
  Servers job(1);
  const auto one = job.worker(0, 2), other = job.worker(1, 2);
  one->open(sparse("table", 4));
  CHECK(code_of([&] { other->open(sparse("table", 5)); }) == StatusCode::mismatch);
  CHECK(other->open(sparse("another", 5)) == 0);  // and may go on
  CHECK_THROWS_AS(one->open(sparse("", 4)), InvalidArgument);
  CHECK_THROWS_AS(one->open(sparse("wide", 1u << 20)), InvalidArgument);
}

TEST_CASE("a full server refuses rows, and serves on") {
  Servers job(1, true, {.memory = std::size_t{4} << 20});
  const auto worker = job.worker(0, 1);
  const int table = worker->open(sparse("full", 1024));
  std::vector<std::uint64_t> keys(100);
  std::vector<float> ones(keys.size() * 1024, 1.0f);
  std::string why;
  for (std::uint64_t round = 0; round < 20 && why.empty(); ++round) {
    std::iota(keys.begin(), keys.end(), round * keys.size());
    try {
      pushed(*worker, table, keys, ones);
    } catch (const Error& error) {
      why = error.what();
    }
  }
  CHECK(why.find("'full' is full") != std::string::npos);
  CHECK(why.find("HVD_SERVER_MEMORY") != std::string::npos);
  CHECK(pulled(*worker, table, {0})[0] == 1.0f);
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a server that starts again has its snapshot, and applies what it has not, once") {
  const testing::TemporaryFolder folder;
  const ServerOptions options{.snapshot = folder.path()};
  Servers job(2, true, options);
  const auto worker = job.worker(0, 1);
  const int table = worker->open(sparse("kept", 4, {.rule = UpdateRule::adam, .learning_rate = 0.5f}));
  std::vector<std::uint64_t> keys(1000);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  const std::vector<float> gradients(keys.size() * 4, 0.5f);
  pushed(*worker, table, keys, gradients);
  const auto before = pulled(*worker, table, keys);
  job.stop(1);  // as a notice of preemption does: it writes a last snapshot
  job.start(1, options);
  CHECK(pulled(*worker, table, keys) == before);
  answered(*worker, worker->snapshot(folder.path()));
  pushed(*worker, table, keys, gradients);
  const auto after = pulled(*worker, table, keys);
  CHECK(after[0] == after[3999]);  // on both servers
  // Three servers read what two have written.
  Servers other(3);
  const auto restored = other.worker(0, 1);
  const int same = restored->open(sparse("kept", 4, {.rule = UpdateRule::adam, .learning_rate = 0.5f}));
  answered(*restored, restored->restore(folder.path()));
  CHECK(pulled(*restored, same, keys) == before);
  CHECK(code_of([&] { answered(*restored, restored->restore("/nowhere")); }) == StatusCode::invalid_argument);
}

TEST_CASE("a server that starts again from an older snapshot takes its workers' clocks from them") {
  const testing::TemporaryFolder folder;
  Servers job(2);
  const auto worker = job.worker(0, 0);
  TableSpec spec = sparse("bounded", 1);
  spec.consistency = Consistency::bounded;
  const int table = worker->open(spec);
  const std::vector<std::uint64_t> keys = {0, 1, 2, 3, 4, 5, 6, 7};
  pushed(*worker, table, keys, std::vector<float>(keys.size(), 1.0f));
  answered(*worker, worker->snapshot(folder.path()));
  for (int i = 0; i < 3; ++i) worker->advance_clock();
  REQUIRE(worker->flush(deadline_after(kTestTimeout)));
  job.stop(1);
  job.start(1, {.snapshot = folder.path()});
  SECTION("those that were there") { CHECK(pulled(*worker, table, keys) == std::vector<float>(keys.size(), 1.0f)); }
  SECTION("and one that comes before them, to servers that differ") {
    const auto late = job.worker(1, 0);
    CHECK(late->clock() == 3);
    std::vector<float> rows(keys.size());
    const auto call = late->pull(late->open(spec), {.keys = keys, .rows = rows.data()});
    CHECK(pulled(*worker, table, keys) == std::vector<float>(keys.size(), 1.0f));
    answered(*late, call);
    CHECK(rows == std::vector<float>(keys.size(), 1.0f));
    late->wait(late->leave(), deadline_after(kTestTimeout));
  }
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("calls to other servers go on while one is away, and tables are opened there afterwards") {
  const testing::TemporaryFolder folder;
  const ServerOptions options{.snapshot = folder.path()};
  Servers job(2, true, options);
  const auto worker = job.worker(0, 1);
  const TableSpec spec = sparse("kept", 1);
  const int table = worker->open(spec);
  std::uint64_t at[2] = {0, 0};  // a key of each server
  while (shard_of(spec, at[0], 2) != 0) ++at[0];
  while (shard_of(spec, at[1], 2) != 1) ++at[1];
  pushed(*worker, table, {at[0], at[1]}, {1.0f, 2.0f});
  answered(*worker, worker->snapshot(folder.path()));
  job.stop(1);
  const std::vector<std::uint64_t> keys = {at[1]};
  float row = 0;
  const auto call = worker->pull(table, {.keys = keys, .rows = &row});
  const TimePoint begin = Clock::now();
  CHECK_FALSE(worker->wait(call, deadline_after(20ms)));
  CHECK_FALSE(worker->is_done(call));
  float seen = 0;
  std::thread other([&] { seen = pulled(*worker, table, {at[0]})[0]; });
  other.join();
  CHECK(seen == 1.0f);
  pushed(*worker, table, {at[0]}, {1.0f});
  CHECK(Clock::now() - begin < 10s);  // half of the time in which the server may come back
  int later = -1;
  std::thread open([&] { later = worker->open(sparse("later", 1)); });
  CHECK(pulled(*worker, table, {at[0]})[0] == 2.0f);
  job.start(1, options);
  CHECK(worker->wait(call, deadline_after(kTestTimeout)));
  CHECK(row == 2.0f);
  open.join();
  REQUIRE(later == 1);
  pushed(*worker, 1, {at[0], at[1]}, {3.0f, 4.0f});
  CHECK(pulled(*worker, 1, {at[1], at[0]}) == std::vector<float>{4.0f, 3.0f});
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a server that does not come back is named, and ends all calls") {
  Servers job(2);
  const auto worker = job.worker(0, 1, 1, 2s);
  const int table = worker->open(sparse("kept", 1));
  job.stop(1);
  std::vector<std::uint64_t> keys(20);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  std::string why;
  try {
    pulled(*worker, table, keys);
  } catch (const PeerLost& error) {
    why = error.what();
  }
  CHECK(why.find("parameter server 1 cannot be reached") != std::string::npos);
  CHECK(code_of([&] { pulled(*worker, table, keys); }) == StatusCode::peer_lost);
}

TEST_CASE("nobody waits for a worker that has gone since the snapshot from which its server starts again") {
  const int workers = GENERATE(2, 0);
  const testing::TemporaryFolder folder;
  Servers job(1);
  TableSpec spec = sparse("bounded", 1);
  spec.consistency = Consistency::bounded;
  const auto stays = job.worker(0, workers), goes = job.worker(1, workers);
  const int table = stays->open(spec);
  pushed(*stays, table, {1}, {1.0f});
  answered(*stays, stays->snapshot(folder.path()));
  goes->wait(goes->leave(), deadline_after(kTestTimeout));
  job.stop(0);
  job.start(0, {.snapshot = folder.path(), .start_timeout = 100ms, .lease = 100ms});
  stays->advance_clock();
  CHECK(pulled(*stays, table, {1}) == std::vector<float>{1.0f});
  stays->wait(stays->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a cache has rows of a few clocks, and never older ones than the worker's own pushes") {
  const int servers = GENERATE(1, 2);
  Servers job(servers);
  const auto worker = job.worker(0, 2), other = job.worker(1, 2);
  const TableSpec spec = sparse("cached", 2);
  const int table = worker->open(spec, 2);
  other->open(spec);
  const auto counts = [&] {
    const auto both = worker->cache_counts(table);
    return std::pair(both.found, both.missing);
  };
  std::vector<std::uint64_t> keys(40);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  const std::vector<float> ones(80, 1.0f), zeros(80, 0.0f);
  CHECK(pulled(*worker, table, keys) == zeros);
  pushed(*other, 0, keys, ones);
  for (int clock = 0; clock < 2; ++clock) worker->advance_clock();
  CHECK(pulled(*worker, table, keys) == zeros);  // from the cache
  CHECK(counts() == std::pair<std::uint64_t, std::uint64_t>(40, 40));
  worker->advance_clock();
  CHECK(pulled(*worker, table, keys) == ones);  // they were too old
  CHECK(counts() == std::pair<std::uint64_t, std::uint64_t>(40, 80));
  pushed(*other, 0, keys, ones);
  pushed(*worker, table, {3}, {1.0f, 1.0f});
  CHECK(pulled(*worker, table, {2, 3, 4}) == std::vector<float>{1, 1, 3, 3, 1, 1});
  CHECK(counts() == std::pair<std::uint64_t, std::uint64_t>(42, 81));
  // A pull that was asked for before a push brings what the push has changed since: nothing to keep.
  std::vector<float> early(80);
  for (int clock = 0; clock < 3; ++clock) worker->advance_clock();
  const auto pull = worker->pull(table, {.keys = keys, .rows = early.data()});
  const auto push = worker->push(table, {.keys = keys, .gradients = ones.data()});
  REQUIRE(worker->wait(pull, deadline_after(kTestTimeout)));
  CHECK(pulled(*worker, table, {0}) == std::vector<float>{3, 3});
  REQUIRE(worker->wait(push, deadline_after(kTestTimeout)));
  std::vector<float> rows(80);
  REQUIRE(worker->wait(worker->push_pull(table, {.keys = keys, .gradients = ones.data(), .rows = rows.data()}),
                       deadline_after(kTestTimeout)));
  const std::uint64_t before = counts().first;
  CHECK(pulled(*worker, table, keys) == rows);  // what push_pull has brought is kept
  CHECK(counts().first == before + 40);
  CHECK(other->cache_counts(0).missing == 0);
  CHECK_THROWS_AS(worker->open(spec), InvalidArgument);  // open already, with a cache
  TableSpec synchronous = sparse("synchronous", 1);
  synchronous.consistency = Consistency::synchronous;
  CHECK_THROWS_AS(worker->open(synchronous, 1), InvalidArgument);
  other->wait(other->leave(), deadline_after(kTestTimeout));
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a cache has nothing of before a restore") {
  const testing::TemporaryFolder folder;
  Servers job(1);
  const auto worker = job.worker(0, 1);
  const int table = worker->open(sparse("cached", 1), 5);
  pushed(*worker, table, {1}, {1.0f});
  answered(*worker, worker->snapshot(folder.path()));
  pushed(*worker, table, {1}, {1.0f});
  CHECK(pulled(*worker, table, {1}) == std::vector<float>{2});
  answered(*worker, worker->restore(folder.path()));
  CHECK(pulled(*worker, table, {1}) == std::vector<float>{1});
}

// Of a shard, as the server says that answers for it.
std::string copies_of(ParameterClient& worker, std::size_t shard) {
  const auto stats = worker.stats();
  answered(worker, stats);
  const std::string& text = ParameterClient::texts(stats)[shard];
  return text.substr(0, text.find('\n'));
}

bool await_copies(ParameterClient& worker, int shards) {
  const Deadline deadline = deadline_after(20s);
  for (int shard = 0; shard < shards; ++shard) {
    while (copies_of(worker, static_cast<std::size_t>(shard)) != "- copies 2") {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(5ms);
    }
  }
  return true;
}

TEST_CASE("with two copies a lost server's rows are there, and a new one gets them") {
  const int count = GENERATE(2, 3);
  const ServerOptions options{.copies = 2};
  Servers job(count, true, options);
  const auto worker = job.worker(0, 1, 2);
  const int table = worker->open(sparse("kept", 8, {.rule = UpdateRule::adam, .learning_rate = 0.5f}));
  std::vector<std::uint64_t> keys(500);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  const std::vector<float> gradients(keys.size() * 8, 0.5f);
  for (int round = 0; round < 2 * count; ++round) {
    const int lost = round % count;
    for (int i = 0; i < 3; ++i) pushed(*worker, table, keys, gradients);
    CHECK(code_of([&] { answered(*worker, worker->set_learning_rate(table, -1.0f)); }) == StatusCode::invalid_argument);
    REQUIRE(await_copies(*worker, count));
    const auto before = pulled(*worker, table, keys);
    job.stop(lost);
    CHECK(pulled(*worker, table, keys) == before);
    pushed(*worker, table, keys, gradients);
    const auto alone = pulled(*worker, table, keys);
    CHECK(std::ranges::all_of(alone, [&](float value) { return value == alone[0]; }));
    job.start(lost, options);
    REQUIRE(await_copies(*worker, count));
    CHECK(pulled(*worker, table, keys) == alone);
  }
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("with two copies both have the rows that are left, whichever went") {
  const ServerOptions options{.copies = 2};
  Servers job(2, true, options);
  const auto worker = job.worker(0, 1, 2);
  TableSpec limited = sparse("limited", 2), aged = sparse("aged", 2);
  limited.rows = 30;  // on each server
  aged.max_age = 2;
  const int tables[] = {worker->open(limited), worker->open(aged)};
  std::vector<std::uint64_t> keys(400);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  const std::vector<std::uint64_t> read(keys.begin(), keys.begin() + 20);  // only pulls keep these rows
  std::uint64_t next = read.size();
  for (int lost = 0; lost < 2; ++lost) {
    REQUIRE(await_copies(*worker, 2));
    for (const int table : tables) pushed(*worker, table, read, std::vector<float>(2 * read.size(), 1.0f));
    for (int i = 0; i < 40; ++i, next = next + 10 < keys.size() ? next + 10 : read.size()) {
      const std::span<const std::uint64_t> some(keys.data() + next, 10);
      for (const int table : tables) {
        pulled(*worker, table, read);
        pushed(*worker, table, {some.begin(), some.end()}, std::vector<float>(2 * some.size(), 1.0f));
      }
      worker->advance_clock();
    }
    const auto rows = [&] { return std::pair(pulled(*worker, tables[0], keys), pulled(*worker, tables[1], keys)); };
    const auto before = rows();
    const auto [limited_rows, aged_rows] = before;
    CHECK(std::ranges::count_if(limited_rows, [](float value) { return value != 0; }) == 2 * 2 * 30);
    CHECK(std::ranges::all_of(std::span(aged_rows).first(2 * read.size()), [](float value) { return value != 0; }));
    CHECK(std::ranges::count(aged_rows, 0.0f) > 2 * 300);
    job.stop(lost);
    CHECK(rows() == before);
    job.start(lost, options);
  }
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("with two copies gradients are compensated once, and both have the same bits") {
  const ServerOptions options{.copies = 2};
  Servers job(2, true, options);
  const auto slow = job.worker(0, 2, 2), fast = job.worker(1, 2, 2);
  TableSpec spec = sparse("dense", 3, {.rule = UpdateRule::sgd, .learning_rate = 0.5f});
  spec.dense = true;
  spec.rows = 7;
  spec.compensation = 0.125f;
  const int table = slow->open(spec);
  fast->open(spec);
  REQUIRE(await_copies(*slow, 2));
  std::vector<std::uint64_t> keys(spec.rows);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  pulled(*slow, table, keys);
  pushed(*fast, table, keys, std::vector<float>(keys.size() * 3, 2.0f));
  pushed(*slow, table, keys, std::vector<float>(keys.size() * 3, 4.0f));
  const auto before = pulled(*fast, table, keys);
  CHECK(before[0] == -1 - 0.5f * (4 + 0.125f * 16 * -1));
  CHECK(std::ranges::all_of(before, [&](float value) { return value == before[0]; }));
  job.stop(0);
  CHECK(pulled(*fast, table, keys) == before);
  for (const auto& worker : {slow.get(), fast.get()}) worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

// Until the shard is where it is wanted.
bool await_move(const Store& store, int shard, int from, int to) {
  const ShardDirectory directory(store, 2);
  directory.want(shard, from, to);
  const Deadline deadline = deadline_after(kTestTimeout);
  while (directory.server_of(shard) != to && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
  return directory.server_of(shard) == to;
}

TEST_CASE("shards move while workers push, and each push counts once") {
  const bool shares_memory = GENERATE(true, false);
  constexpr int kWorkers = 2, kBound = 20;
  Servers job(2, shares_memory, {.parts = 2});
  std::atomic<bool> is_over{false};
  constexpr std::uint32_t kNoClock = std::numeric_limits<std::uint32_t>::max();
  std::atomic<std::uint32_t> last_clock{kNoClock};
  std::vector<std::vector<float>> sums(kWorkers), seen(kWorkers);
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> keys(300);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      const auto worker = job.worker(w, kWorkers);
      TableSpec bounded = sparse("bounded", 4), synchronous = sparse("synchronous", 4), dense = sparse("dense", 1000);
      bounded.consistency = Consistency::bounded;
      bounded.bound = kBound;
      synchronous.consistency = Consistency::synchronous;
      dense.dense = true;
      dense.rows = 300;
      const int tables[] = {worker->open(bounded), worker->open(synchronous), worker->open(dense)};
      std::mt19937 dice(static_cast<unsigned>(w));
      std::vector<float>& own = sums[static_cast<std::size_t>(w)];
      own.resize(keys.size());
      const auto step = [&] {
        std::vector<std::uint64_t> some(10);
        for (std::uint64_t& key : some) own[key = dice() % keys.size()] += 1;
        for (const int table : tables)
          pushed(*worker, table, some, std::vector<float>(10 * worker->spec(table).width, 1.0f));
        pulled(*worker, tables[0], some);
        worker->advance_clock();
      };
      // Both end with a clock that neither has reached: one that stopped earlier would keep the other one waiting.
      while (worker->clock() < last_clock) {
        std::uint32_t none = kNoClock;
        if (w == 0 && is_over) last_clock.compare_exchange_strong(none, worker->clock() + kBound + 2);
        step();
      }
      job.store.add("stopped", 1);
      while (job.store.add("stopped", 0) < kWorkers) std::this_thread::sleep_for(1ms);
      for (const int table : tables) {
        const std::vector<float> rows = pulled(*worker, table, keys);
        for (std::size_t i = 0; i < rows.size(); i += worker->spec(table).width) {
          seen[static_cast<std::size_t>(w)].push_back(rows[i]);
        }
      }
      worker->wait(worker->leave(), deadline_after(kTestTimeout));
    });
  }
  std::vector<bool> moved;
  for (const auto& [shard, from, to] : {std::tuple{0, 0, 1}, {3, 1, 0}, {0, 1, 0}}) {
    moved.push_back(await_move(job.store, shard, from, to));
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(std::ranges::count(moved, true) == 3);
  std::vector<float> expected;
  for (int table = 0; table < 3; ++table) {
    for (std::size_t i = 0; i < keys.size(); ++i) expected.push_back(sums[0][i] + sums[1][i]);
  }
  CHECK(seen[0] == seen[1]);  // of the synchronous table; the others have come to rest
  CHECK(seen[0] == expected);
}

TEST_CASE("a server that ends while a shard moves to it loses nothing, and gets it later") {
  const testing::TemporaryFolder folder;  // for moves that are over before it ends
  const ServerOptions options{.parts = 2, .snapshot = folder.path()};
  Servers job(2, true, options);
  const auto worker = job.worker(0, 1);
  const TableSpec spec = sparse("large", 256);
  const int table = worker->open(spec);
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 0; keys.size() < 4000; ++key) {
    if (shard_of(spec, key, 4) == 0) keys.push_back(key);
  }
  std::vector<std::vector<std::uint64_t>> calls;
  for (auto first = keys.begin(); first != keys.end(); first += 400) calls.emplace_back(first, first + 400);
  float pushes = 0;
  const auto push_all = [&] {
    for (const auto& some : calls) pushed(*worker, table, some, std::vector<float>(400 * 256, 1.0f));
    ++pushes;
  };
  push_all();
  const ShardDirectory directory(job.store, 2);
  const auto is_settled = [&] { return directory.wanted_server_of(0) == directory.server_of(0); };
  for (const Duration later : {0ms, 2ms, 5ms, 20ms, 400ms}) {
    directory.want(0, 0, 1);
    std::this_thread::sleep_for(later);  // it may not have begun, or be over
    job.stop(1);
    if (directory.server_of(0) == 0) push_all();  // else nobody answers before server 1 is there again
    job.start(1, options);
    push_all();
    while (!is_settled()) std::this_thread::sleep_for(1ms);
    if (directory.server_of(0) == 0) REQUIRE(await_move(job.store, 0, 0, 1));
    for (const auto& some : calls) {
      REQUIRE(pulled(*worker, table, some) == std::vector<float>(400 * 256, pushes));
    }
    REQUIRE(await_move(job.store, 0, 1, 0));
  }
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a hot part moves to a server that has less to do") {
  Servers job(2, true, {.parts = 2, .load_window = 20ms});
  const auto worker = job.worker(0, 1);
  const TableSpec spec = sparse("hot", 256);
  const int table = worker->open(spec);
  std::vector<std::uint64_t> keys;  // of the two shards that server 0 has at first
  for (std::uint64_t key = 0; keys.size() < 500; ++key) {
    if (shard_of(spec, key, 4) % 2 == 0) keys.push_back(key);
  }
  const std::vector<float> ones(keys.size() * 256, 1.0f);
  const ShardDirectory directory(job.store, 2);
  float pushes = 0;
  for (const Deadline deadline = deadline_after(kTestTimeout);
       directory.server_of(0) == directory.server_of(2) && Clock::now() < deadline; ++pushes) {
    pushed(*worker, table, keys, ones);
  }
  CHECK(directory.server_of(0) + directory.server_of(2) == 1);
  CHECK(pulled(*worker, table, keys) == std::vector<float>(ones.size(), pushes));
  worker->wait(worker->leave(), deadline_after(kTestTimeout));
}

TEST_CASE("a server that has lost its rows says so to who has only read them, too") {
  Servers job(1);
  const auto reader = job.worker(0, 2), writer = job.worker(1, 2);
  const int table = writer->open(sparse("lost", 1));
  pushed(*writer, table, {1}, {2.0f});
  CHECK(pulled(*reader, reader->open(sparse("lost", 1)), {1}) == std::vector<float>{2.0f});
  job.stop(0);
  job.start(0, {});
  CHECK(code_of([&] { pulled(*reader, table, {1}); }) == StatusCode::aborted);
}

TEST_CASE("a server may end right behind its last answer") {
  for (int i = 0; i < 20; ++i) {
    Servers job(1, false);
    const auto worker = job.worker(0, 1);
    std::thread end([&] { job.await_end(0); });
    const StatusCode left = code_of([&] { worker->wait(worker->leave(), deadline_after(10s)); });
    end.join();
    REQUIRE(left == StatusCode::ok);
  }
}

TEST_CASE("a server that has lost its rows says so") {
  const int way = GENERATE(0, 1, 2);  // how the server got the rows
  const testing::TemporaryFolder folder;
  Servers job(1);
  const auto worker = job.worker(0, 1);
  TableSpec spec = sparse("lost", 1);
  spec.dense = spec.filled = true;
  spec.rows = 2;
  const int table = worker->open(spec);
  const std::vector<float> values = {1.0f, 2.0f};
  const RowsCall whole{.is_whole = true, .gradients = values.data(), .values = 2};
  if (way == 1) {
    Servers other(1);
    const auto writer = other.worker(0, 1);
    writer->open(spec);
    REQUIRE(writer->wait(writer->fill(0, whole), deadline_after(kTestTimeout)));
    answered(*writer, writer->snapshot(folder.path()));
    answered(*worker, worker->restore(folder.path()));
  } else {
    REQUIRE(worker->wait(worker->fill(table, whole), deadline_after(kTestTimeout)));
  }
  if (way == 2) pushed(*worker, table, {1}, {1.0f});
  job.stop(0);
  job.start(0, {});
  CHECK(code_of([&] { pulled(*worker, table, {1}); }) == StatusCode::aborted);
  CHECK(code_of([&] { pulled(*worker, table, {1}); }) == StatusCode::aborted);
}

TEST_CASE("a server whose snapshot was made before a table was filled has lost it, and says so") {
  const bool is_open = GENERATE(false, true);
  const testing::TemporaryFolder folder;
  Servers job(1);
  const auto worker = job.worker(0, 1);
  TableSpec spec = sparse("late", 1);
  spec.dense = spec.filled = true;
  spec.rows = 2;
  if (is_open) worker->open(spec);
  answered(*worker, worker->snapshot(folder.path()));
  const int table = worker->open(spec);
  const std::vector<float> values = {1.0f, 2.0f};
  answered(*worker, worker->fill(table, {.is_whole = true, .gradients = values.data(), .values = 2}));
  CHECK(pulled(*worker, table, {0, 1}) == values);
  job.stop(0);
  job.start(0, {.snapshot = folder.path()});
  CHECK(code_of([&] { pulled(*worker, table, {1}); }) == StatusCode::aborted);
}

TEST_CASE("an answer to somebody who has stopped waiting for it harms nobody") {
  Servers job(1);
  const auto worker = job.worker(0, 1);
  job.stop(0);
  CHECK_FALSE(worker->wait(worker->stats(), deadline_after(1ms)));
  job.start(0, {});
  CHECK(worker->flush(deadline_after(kTestTimeout)));
}

}  // namespace
}  // namespace hvd
