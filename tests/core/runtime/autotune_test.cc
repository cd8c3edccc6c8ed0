// Autotuning in the whole runtime, ranks as threads: all ranks change at one point, results stay right, it ends, and
// then steps are locked.
#include <barrier>
#include <fstream>
#include <set>
#include <thread>

#include "tests/core/runtime/lock_state.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace hvd::testing {

namespace {

// Tensors of 8 bytes to 256 KiB (32 KiB under a sanitizer), so that buckets and chunks of several sizes mean several
// things.
struct MixedStep {
  explicit MixedStep(Runtime& rank) : runtime(rank) {
    for (std::size_t elements = 2; elements <= (kSanitized ? 1 << 13 : 1 << 16); elements *= 2) {
      tensors.emplace_back(elements);
    }
  }

  void take() {
    const auto own = static_cast<float>(runtime.topology().rank + 1);
    std::vector<CallerReference> handles;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].assign(tensors[i].size(), own * static_cast<float>(i + 1));
      CallArguments call{.name = "tensor." + std::to_string(i)};
      call.inputs =
          call.outputs = {{.data = tensors[i].data(), .shape = {static_cast<std::int64_t>(tensors[i].size())}}};
      handles.push_back(runtime.submit(call));
    }
    const int size = runtime.topology().size;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      require(handles[i]->wait(deadline_after(60s)), "not done");
      if (!handles[i]->completion.status().ok()) throw Error(handles[i]->completion.status());
      const float sum = static_cast<float>(size * (size + 1) / 2) * static_cast<float>(i + 1);
      for (const float value : tensors[i]) require(value == sum, "wrong sum");
    }
  }

  Runtime& runtime;
  std::vector<std::vector<float>> tensors;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string field(const std::string& line, int index) {
  std::size_t begin = 0;
  for (; index > 0; --index) begin = line.find(',', begin) + 1;
  return line.substr(begin, line.find(',', begin) - begin);
}

}  // namespace

TEST_CASE("autotuning changes all ranks at one point, ends within 200 steps, and leaves a log and a locked schedule") {
  const Layout layout = GENERATE(Layout{{3}}, Layout{{1, 1}}, Layout{{2, 1}});
  if (kSanitized && layout.size() == 3) return;
  INFO(layout.name());
  const TemporaryFolder folder;
  const std::string log = folder / "log.csv";
  std::barrier<> together(layout.size());
  REQUIRE_NOTHROW(run_ranks({layout, {{"HVD_AUTOTUNE", "1"}, {"HVD_AUTOTUNE_LOG", log}}}, [&](Runtime& runtime) {
    MixedStep step(runtime);
    for (int i = 0; i < 200; ++i) step.take();
    together.arrive_and_wait();
    require(lines_of(log).size() > 10, "few samples");
    const std::size_t samples = lines_of(log).size();
    for (int i = 0; i < 20; ++i) step.take();
    require(lines_of(log).size() == samples, "it goes on after 200 steps");
    together.arrive_and_wait();
    require(locked_soon(runtime), "the schedule is not locked");
    together.arrive_and_wait();
  }));
  std::set<std::string> chunks, cycles, thresholds;
  const auto lines = lines_of(log);
  for (const std::string& line : std::vector(lines.begin() + 1, lines.end())) {
    chunks.insert(field(line, 2));
    cycles.insert(field(line, 5));
    thresholds.insert(field(line, 6));
  }
  CHECK(chunks.size() > 1);
  CHECK(cycles.size() > 1);
  CHECK(thresholds.size() > 1);
}

TEST_CASE("what is set by hand is not tuned, and a log that cannot be written ends nothing") {
  const Environment environment = {{"HVD_AUTOTUNE", "1"},
                                   {"HVD_AUTOTUNE_LOG", "/nowhere/log.csv"},
                                   {"HVD_FUSION_THRESHOLD", "1000"},
                                   {"HVD_CYCLE_TIME", "0"},
                                   {"HVD_CHUNK_BYTES", "4096"}};
  const RunOptions options{Layout{std::vector<int>{2}}, environment};
  std::barrier<> together(2);
  REQUIRE_NOTHROW(run_ranks(options, [&](Runtime& runtime) {
    MixedStep step(runtime);
    for (int i = 0; i < 60; ++i) step.take();
    together.arrive_and_wait();
    require(locked_soon(runtime), "the schedule is not locked");
    together.arrive_and_wait();
  }));
}

}  // namespace hvd::testing
