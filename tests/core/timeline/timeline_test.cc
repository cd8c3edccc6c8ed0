#include "core/timeline/timeline.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/base/error.h"
#include "tests/core/control/specs.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

using namespace hvd;
using nlohmann::json;

#ifndef HVD_SANITIZED  // sanitizers have their own operator new
namespace {

// While it is set, every allocation on a timeline's thread fails.
std::atomic<bool> out_of_memory{false};

bool is_writer() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string_view(name) == "hvd-timeline";
}

}  // namespace

// Not inlined: GCC 12 would take a free() of its result for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* const memory = out_of_memory && is_writer() ? nullptr : std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace {

const Log kSilent("test", LogLevel::off);

class Path {
 public:
  std::string text() const { return folder_ / "timeline.json"; }
  json read() const { return json::parse(std::ifstream(text())); }
  // Once what was recorded is written.
  json read_with(std::size_t events) const {
    for (int attempt = 0; attempt < 5000; ++attempt) {
      const json all = json::parse(std::ifstream(text()), nullptr, false);
      if (!all.is_discarded() && all.size() >= events) return all;
      std::this_thread::sleep_for(1ms);
    }
    throw Timeout("the events are not written");
  }

 private:
  hvd::testing::TemporaryFolder folder_;
};

void limit_file_size(rlim_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  setrlimit(RLIMIT_FSIZE, &limit);
}

// Events of a kind, in their order.
std::vector<json> of_kind(const json& events, const std::string& kind) {
  std::vector<json> found;
  for (const json& event : events) {
    if (event["ph"] == kind) found.push_back(event);
  }
  return found;
}

}  // namespace

TEST_CASE("timeline: a row for each name, and what began ends") {
  const Path path;
  Timeline timeline(kSilent);
  timeline.start(path.text(), true);
  timeline.begin("a", "NEGOTIATE_ALLREDUCE");
  timeline.mark_rank("a", 3);
  timeline.end("a");
  timeline.begin("b \"quoted\" \xff", "ALLREDUCE");
  timeline.end("b \"quoted\" \xff", "float32", "[2, 3]");
  if (timeline.marks_rounds()) timeline.mark_round();
  timeline.stop();

  const json events = path.read();
  CHECK(events[0]["args"].contains("start_time_since_epoch_in_micros"));
  CHECK(of_kind(events, "M").size() == 5);
  const auto begins = of_kind(events, "B"), ends = of_kind(events, "E");
  REQUIRE(begins.size() == 2);
  REQUIRE(ends.size() == 2);
  CHECK(begins[0]["name"] == "NEGOTIATE_ALLREDUCE");
  CHECK(begins[0]["pid"] == ends[0]["pid"]);
  CHECK(begins[0]["pid"] != begins[1]["pid"]);
  CHECK(ends[1]["args"]["dtype"] == "float32");
  CHECK(ends[1]["args"]["shape"] == "[2, 3]");
  CHECK(begins[0]["ts"] <= ends[0]["ts"]);
  CHECK(of_kind(events, "X")[0]["name"] == "3");
  CHECK(of_kind(events, "i")[0]["name"] == "CYCLE_START");
}

TEST_CASE("timeline: while it is written the file is JSON") {
  const Path path;
  Timeline timeline(kSilent);
  timeline.start(path.text(), false);
  const std::size_t introductions = 3;  // of the file and of one name
  for (std::size_t batch = 1; batch <= (testing::kSanitized ? 5 : 20); ++batch) {
    for (int i = 0; i < 500; ++i) {
      timeline.begin("tensor", "ALLREDUCE");
      timeline.end("tensor");
    }
    CHECK(path.read_with(introductions + batch * 1000).size() == introductions + batch * 1000);
  }
}

TEST_CASE("timeline: nothing is recorded that nobody asked for, and it may be started again") {
  const Path first, second;
  Timeline timeline(kSilent);
  timeline.stop();
  timeline.begin("before", "ALLREDUCE");
  timeline.start(first.text(), false);
  timeline.start(first.text(), false);
  CHECK_FALSE(timeline.marks_rounds());
  CHECK_THROWS_AS(timeline.start(second.text(), false), InvalidArgument);
  timeline.stop();
  timeline.begin("between", "ALLREDUCE");
  timeline.start(second.text(), true);
  timeline.begin("after", "ALLREDUCE");
  timeline.stop();
  CHECK(of_kind(first.read(), "B").empty());
  CHECK(of_kind(second.read(), "B").size() == 1);
}

TEST_CASE("timeline: a file that cannot be made is an error, a disk that fills up a warning") {
  Timeline timeline(kSilent);
  CHECK_THROWS_WITH(timeline.start("/nowhere/timeline.json", false),
                    "cannot write the timeline /nowhere/timeline.json: No such file or directory");
  CHECK_FALSE(timeline.active());
  CHECK_THROWS_AS(timeline.start("/dev/full", false), InvalidArgument);

  const Path path;
  const Log log("test", LogLevel::warning);
  const CapturedStderr captured;
  Timeline full(log);
  full.start(path.text(), false);
  std::signal(SIGXFSZ, SIG_IGN);
  limit_file_size(1 << 14);
  for (int i = 0; i < 10'000 && full.active(); ++i) full.begin("tensor " + std::to_string(i), "ALLREDUCE");
  full.stop();
  limit_file_size(RLIM_INFINITY);
  CHECK(captured.count("cannot write the timeline " + path.text() + ": ") == 1);
  CHECK_NOTHROW(path.read());
}

#ifndef HVD_SANITIZED
TEST_CASE("a timeline without memory ends, and nothing else does") {
  const Path path;
  Timeline timeline(kSilent);
  timeline.start(path.text(), false);
  out_of_memory = true;
  timeline.begin("a", "ALLREDUCE");
  const Deadline deadline = deadline_after(10s);
  while (timeline.active() && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
  timeline.stop();
  out_of_memory = false;
  CHECK(!timeline.active());
  CHECK_NOTHROW(path.read());

  timeline.start(path.text(), false);
  timeline.begin("a", "ALLREDUCE");
  timeline.stop();
  CHECK(path.read().size() > 1);
}
#endif

TEST_CASE("timeline: activities have Horovod's names") {
  OperationSpec adasum = allreduce("x");
  adasum.op = ReduceOp::adasum;
  CHECK(operation_activity(adasum) == "ADASUM");
  CHECK(negotiation_activity(adasum) == "NEGOTIATE_ADASUM");
  struct Row {
    OperationSpec spec;
    std::string operation, by_mpi, by_nccl;
  };
  for (const Row& row : {Row{allreduce("x"), "ALLREDUCE", "MPI_ALLREDUCE", "NCCL_ALLREDUCE"},
                         Row{broadcast("x", 0), "BROADCAST", "MPI_BCAST", "NCCL_BCAST"},
                         Row{allgather("x", {1}), "ALLGATHER", "MPI_ALLGATHER", "NCCL_ALLGATHER"},
                         Row{alltoall("x", {1}), "ALLTOALL", "MPI_ALLTOALL", "NCCL_ALLTOALL"},
                         Row{reducescatter("x", {1}), "REDUCESCATTER", "MPI_REDUCESCATTER", "NCCL_REDUCESCATTER"}}) {
    CHECK(operation_activity(row.spec) == row.operation);
    CHECK(negotiation_activity(row.spec) == "NEGOTIATE_" + row.operation);
    CHECK(backend_activity("mpi", row.spec) == row.by_mpi);
    CHECK(backend_activity("nccl", row.spec) == row.by_nccl);
    CHECK(backend_activity("shared-memory", row.spec) == "shared-memory");
  }
}
