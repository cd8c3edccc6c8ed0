// Everything that programs do, at random: tensors, process sets, joins, delays. Every result is checked, and memory
// must not grow. HVD_TEST_SOAK_SECONDS makes the long one as long as one likes; 1800 is what a release is given.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

long resident_kib() {
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

// One rank. What all ranks must do alike comes from `common_`, which is seeded alike; the rest from `own_`.
class Program {
 public:
  Program(Runtime& runtime, unsigned seed)
      : runtime_(runtime),
        rank_(runtime.topology().rank),
        size_(runtime.topology().size),
        common_(seed),
        own_(seed + 1000u * static_cast<unsigned>(rank_ + 1)) {}

  void turn() {
    if (one_in(150)) change_sets();
    if (one_in(100)) join();
    if (one_in(30)) choose_tensors();
    run_step(kGlobalProcessSet, tensors_);
    if (one_in(3)) run_synchronously();
    if (!sets_.empty() && one_in(2)) run_in_a_set();
    if (own_() % 300 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 3000));
  }

 private:
  bool one_in(unsigned n) { return common_() % n == 0; }

  void choose_tensors() {
    tensors_.clear();
    for (int i = 0, count = 1 + static_cast<int>(common_() % 12); i < count; ++i) {
      tensors_["tensor." + std::to_string(common_() % 20)] = std::size_t{1} << (common_() % 14);
    }
  }

  // Sums are of whole numbers, and exact.
  static float value_of(int rank, std::size_t turn) { return static_cast<float>((rank + 1) * (1 + turn % 50)); }

  CallArguments sum(std::vector<float>& values, std::int32_t set, const std::string& name) {
    std::fill(values.begin(), values.end(), value_of(rank_, turns_));
    CallArguments call{.process_set = set, .name = name};
    call.inputs = call.outputs = {{.data = values.data(), .shape = {static_cast<std::int64_t>(values.size())}}};
    return call;
  }

  void check(const std::vector<float>& values, const std::vector<int>& ranks, const std::string& what) const {
    float expected = 0;
    for (const int rank : ranks) expected += value_of(rank, turns_);
    for (const float value : values) {
      require(value == expected,
              [&] { return what + " is " + std::to_string(value) + ", not " + std::to_string(expected); });
    }
  }

  void run_step(std::int32_t set, const std::map<std::string, std::size_t>& tensors) {
    ++turns_;
    std::vector<std::string> order;
    for (const auto& [name, elements] : tensors) order.push_back(name);
    if (own_() % 4 == 0) std::shuffle(order.begin(), order.end(), own_);
    std::map<std::string, std::vector<float>> values;
    std::vector<std::pair<std::string, CallerReference>> handles;
    for (const std::string& name : order) {
      std::vector<float>& memory = values[name];
      memory.resize(tensors.at(name));
      handles.emplace_back(name, runtime_.submit(sum(memory, set, name)));
      if (own_() % 1000 == 0) std::this_thread::sleep_for(100us);
    }
    const std::vector<int> ranks = runtime_.sets().find(set).set->ranks;
    for (auto& [name, handle] : handles) {
      require(handle->wait(deadline_after(120s)), name + " is not done");
      if (!handle->completion.status().ok()) throw Error(handle->completion.status());
      check(values[name], ranks, name);
    }
  }

  void run_synchronously() {
    ++turns_;
    std::vector<float> values(2);
    require(outcome_of_run(runtime_, sum(values, kGlobalProcessSet, "")).ok(), "a synchronous call failed");
    check(values, runtime_.sets().find(0).set->ranks, "a synchronous sum");
  }

  void run_in_a_set() {
    const std::int32_t id = sets_[common_() % sets_.size()];
    const ProcessSet set = *runtime_.sets().find(id).set;
    const int repetitions = 1 + static_cast<int>(common_() % 5);
    if (set.rank_of(rank_)) {
      for (int i = 0; i < repetitions; ++i) run_step(id, {{"in a set", 100}, {"in a set, too", 10}});
      turns_ -= static_cast<std::size_t>(repetitions);
    }
    turns_ += static_cast<std::size_t>(repetitions);
  }

  void change_sets() {
    if (sets_.size() > 2) {
      const std::size_t which = common_() % sets_.size();
      runtime_.sets().remove(sets_[which]);
      sets_.erase(sets_.begin() + static_cast<std::ptrdiff_t>(which));
      return;
    }
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (common_() % 2 == 0) ranks.push_back(rank);
    }
    try {
      sets_.push_back(runtime_.sets().add(ranks));
    } catch (const InvalidArgument&) {
      // None or all of the ranks, or those of another set: so for everyone.
    }
  }

  // Ranks have different numbers of batches.
  void join() {
    std::vector<int> batches;
    for (int rank = 0; rank < size_; ++rank) batches.push_back(static_cast<int>(common_() % 6));
    ++turns_;
    for (int batch = 0; batch < batches[static_cast<std::size_t>(rank_)]; ++batch) {
      std::vector<int> ranks;
      for (int rank = 0; rank < size_; ++rank) {
        if (batches[static_cast<std::size_t>(rank)] > batch) ranks.push_back(rank);
      }
      std::vector<float> values(50);
      perform(runtime_, sum(values, kGlobalProcessSet, "a batch"));
      check(values, ranks, "a batch");
    }
    perform(runtime_, {.collective = Collective::join});
  }

  Runtime& runtime_;
  const int rank_, size_;
  std::mt19937 common_, own_;
  std::map<std::string, std::size_t> tensors_{{"tensor.0", 100}, {"tensor.1", 5}};
  std::vector<std::int32_t> sets_;
  std::size_t turns_ = 0;
};

void soak(const Layout& layout, Duration duration, unsigned seed) {
  const Deadline end = deadline_after(duration);
  long warm_kib = 0;
  run_ranks({layout, {}}, [&](Runtime& runtime) {
    Program program(runtime, seed);
    for (int turn = 0;; ++turn) {
      program.turn();
      if (turn % 50 != 0) continue;
      // Rank 0 says when it is enough.
      float over = runtime.topology().rank == 0 && Clock::now() >= end ? 1.0F : 0.0F;
      CallArguments call{.name = "is it enough"};
      call.inputs = call.outputs = {{.data = &over, .shape = {}}};
      perform(runtime, call);
      if (runtime.topology().rank == 0 && turn == 1000) warm_kib = resident_kib();
      if (over > 0) break;
    }
  });
#ifndef HVD_SANITIZED
  if (warm_kib > 0) CHECK(resident_kib() < warm_kib + 20 * 1024);
#endif
}

}  // namespace

TEST_CASE("a soak") {
  const Layout layout = GENERATE(Layout{{8}}, Layout{{2, 2}}, Layout{{3}, false});
  INFO(layout.name());
  REQUIRE_NOTHROW(soak(layout, 1s, 1));
}

TEST_CASE("a long soak", "[.long]") {
  const char* seconds = std::getenv("HVD_TEST_SOAK_SECONDS");
  REQUIRE_NOTHROW(soak({{8}}, std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 60), 2));
}

}  // namespace hvd::testing
