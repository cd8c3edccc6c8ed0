// The C interface as a job of one sees it: arguments, status codes, ownership. Jobs of several: tests/processes,
// tests/python.
#include "include/hvd.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "include/hvd_ps.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/process_entries.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace {

// hvd_init() for the length of a test.
struct Job {
  Job() { REQUIRE(hvd_init() == HVD_OK); }
  ~Job() { hvd_shutdown(); }
};

const std::int64_t kShape[] = {4};

hvd_tensor tensor_of(std::vector<float>& data) {
  return {
      .data = data.data(), .shape = kShape, .dimensions = 1, .dtype = HVD_FLOAT32, .device = HVD_CPU, .reserved = 0};
}

// Whether the body, run in a forked child, returned true within ten seconds.
template <typename Body>
bool in_forked_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

bool last_error_says(const std::string& word) { return std::string(hvd_last_error()).find(word) != std::string::npos; }

}  // namespace

TEST_CASE("before init and after shutdown every call says so") {
  hvd_topology topology = HVD_TOPOLOGY_INIT;
  hvd_work* work = nullptr;
  hvd_call call = HVD_CALL_INIT;
  CHECK(hvd_is_initialized() == 0);
  CHECK(hvd_get_topology(&topology) == HVD_NOT_INITIALIZED);
  CHECK(last_error_says("init"));
  CHECK(hvd_submit(&call, &work) == HVD_NOT_INITIALIZED);
  const char* table = nullptr;
  CHECK(hvd_get_algorithm_table(&table) == HVD_NOT_INITIALIZED);
  const hvd_metric* metrics = nullptr;
  size_t count = 0;
  CHECK(hvd_get_metrics(&metrics, &count) == HVD_NOT_INITIALIZED);
  CHECK(hvd_shutdown() == HVD_OK);
  for (int i = 0; i < 3; ++i) {
    const Job job;
    CHECK(hvd_init() == HVD_OK);
    CHECK(hvd_is_initialized() == 1);
    CHECK(hvd_get_topology(&topology) == HVD_OK);
    CHECK((topology.rank == 0 && topology.size == 1 && topology.local_size == 1 && topology.homogeneous == 1));
    CHECK(topology.local_cpus > 0);
  }
  CHECK(hvd_is_initialized() == 0);
}

TEST_CASE("null pointers and foreign structures are refused") {
  const Job job;
  hvd_work* work = nullptr;
  CHECK(hvd_submit(nullptr, &work) == HVD_INVALID_ARGUMENT);
  hvd_call call = HVD_CALL_INIT;
  CHECK(hvd_submit(&call, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_get_topology(nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_work_on_done(nullptr, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_get_algorithm_table(nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_work_wait(nullptr, 0) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_send(nullptr, &work) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_receive(nullptr, &work) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_work_source(nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  hvd_message message = HVD_MESSAGE_INIT;
  CHECK(hvd_send(&message, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_send(&message, &work) == HVD_INVALID_ARGUMENT);
  message.bytes = 8;
  CHECK(hvd_receive(&message, &work) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("data is NULL"));
  message.struct_size = 4096;
  CHECK(hvd_receive(&message, &work) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("struct_size"));
  CHECK(hvd_work_poll(nullptr) == 0);
  hvd_work_free(nullptr);
  hvd_free(nullptr);

  call.struct_size = 4096;
  CHECK(hvd_submit(&call, &work) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("struct_size"));
  call = HVD_CALL_INIT;
  call.collective = 99;
  CHECK(hvd_submit(&call, &work) == HVD_INVALID_ARGUMENT);
  call = HVD_CALL_INIT;
  call.reduce_op = -1;
  CHECK(hvd_submit(&call, &work) == HVD_INVALID_ARGUMENT);
  call = HVD_CALL_INIT;
  call.count = 1;
  CHECK(hvd_submit(&call, &work) == HVD_INVALID_ARGUMENT);
  std::vector<float> data(4);
  hvd_tensor tensor = tensor_of(data);
  call.inputs = call.outputs = &tensor;
  tensor.dtype = 77;
  CHECK(hvd_submit(&call, &work) == HVD_INVALID_ARGUMENT);
  tensor = tensor_of(data);
  tensor.dimensions = 1000;
  CHECK(hvd_submit(&call, &work) == HVD_INVALID_ARGUMENT);
  CHECK(work == nullptr);
}

TEST_CASE("parameter servers: null pointers are refused") {
  const Job job;
  hvd_ps* ps = nullptr;
  hvd_ps_work* work = nullptr;
  hvd_ps_table table = HVD_PS_TABLE_INIT;
  CHECK(hvd_ps_connect(nullptr) == HVD_INVALID_ARGUMENT);
  REQUIRE(hvd_ps_connect(&ps) == HVD_OK);
  CHECK(hvd_ps_stats(nullptr, &work) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_stats(ps, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("work is NULL"));
  CHECK(hvd_ps_snapshot(ps, nullptr, &work) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_register_update(nullptr, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_open(ps, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  table.name = "sums";
  CHECK(hvd_ps_open(ps, &table, nullptr) == HVD_INVALID_ARGUMENT);
  std::int32_t number = 0;
  REQUIRE(hvd_ps_open(ps, &table, &number) == HVD_OK);
  const std::uint64_t key = 1;
  float row = 0;
  CHECK(hvd_ps_pull(ps, number, &key, 1, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_pull(ps, number, nullptr, 1, &row, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_push_pull(ps, number, &key, 1, &row, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_push_pull(ps, number, &key, 1, nullptr, &row, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_push(ps, number, &key, 1, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_pull(ps, number, nullptr, 0, nullptr, nullptr) == HVD_OK);
  table.name = "the whole";
  table.dense = 1;
  table.rows = 1;
  REQUIRE(hvd_ps_open(ps, &table, &number) == HVD_OK);
  CHECK(hvd_ps_fill(ps, number, nullptr, 1, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_push(ps, number, nullptr, 1, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_pull(ps, number, nullptr, 1, nullptr, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_work_wait(nullptr, 0) == HVD_INVALID_ARGUMENT);
  hvd_ps_work_free(nullptr);
  CHECK(work == nullptr);
  CHECK(hvd_ps_close(nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_ps_close(ps) == HVD_OK);
}

TEST_CASE("several operations are run at once, or none") {
  const Job job;
  std::vector<float> first = {1, 2, 3, 4}, last(4, 3.0F);
  const hvd_tensor tensors[] = {tensor_of(first), tensor_of(last)};
  hvd_call calls[] = {HVD_CALL_INIT, HVD_CALL_INIT};
  for (int i = 0; i < 2; ++i) {
    calls[i].count = 1;
    calls[i].inputs = calls[i].outputs = &tensors[i];
    calls[i].prescale = 2;
  }
  hvd_work* works[2] = {};
  CHECK(hvd_run_all(calls, 2, 60'000'000, works) == HVD_OK);
  CHECK((first == std::vector<float>{2, 4, 6, 8} && last == std::vector<float>(4, 6.0F)));
  for (hvd_work* work : works) {
    CHECK(hvd_work_wait(work, 0) == HVD_OK);
    hvd_work_free(work);
  }
  CHECK(hvd_run_all(calls, 2, -1, nullptr) == HVD_OK);
  CHECK(last == std::vector<float>(4, 12.0F));
  CHECK(hvd_run_all(nullptr, 0, -1, nullptr) == HVD_OK);

  CHECK(hvd_run_all(nullptr, 1, -1, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_run_all(calls, 2, 0, nullptr) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("works is NULL"));
  calls[1].reduce_op = -1;
  CHECK(hvd_run_all(calls, 2, -1, works) == HVD_INVALID_ARGUMENT);
  CHECK((works[0] == nullptr && works[1] == nullptr));
  calls[0].struct_size = 0;
  CHECK(hvd_run_all(calls, 2, -1, works) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("struct_size"));
  CHECK((first == std::vector<float>{4, 8, 12, 16}));
}

TEST_CASE("an allreduce of a job of one scales its tensor") {
  const Job job;
  std::vector<float> in = {1, 2, 3, 4}, out(4);
  const hvd_tensor input = tensor_of(in), output = tensor_of(out);
  hvd_call call = HVD_CALL_INIT;
  call.prescale = 2;
  call.postscale = 0.25;
  call.count = 1;
  call.inputs = &input;
  call.outputs = &output;
  hvd_work* work = nullptr;
  REQUIRE(hvd_submit(&call, &work) == HVD_OK);
  CHECK(hvd_work_wait(work, -1) == HVD_OK);
  CHECK(hvd_work_poll(work) == 1);
  CHECK(out == std::vector<float>{0.5, 1, 1.5, 2});
  hvd_tensor none;
  CHECK(hvd_work_output(work, 0, &none) == HVD_INVALID_ARGUMENT);
  hvd_work_free(work);
}

TEST_CASE("a prepared operation is started again and again") {
  std::vector<float> in = {1, 2, 3, 4}, out(4);
  hvd_work* work = nullptr;
  hvd_work* plain = nullptr;
  CHECK(hvd_start(nullptr) == HVD_INVALID_ARGUMENT);
  {
    const Job job;
    const hvd_tensor input = tensor_of(in), output = tensor_of(out);
    hvd_call call = HVD_CALL_INIT;
    call.name = "again";
    call.count = 1;
    call.inputs = &input;
    CHECK(hvd_prepare(&call, nullptr) == HVD_INVALID_ARGUMENT);
    CHECK(hvd_prepare(&call, &work) == HVD_INVALID_ARGUMENT);  // has no outputs
    CHECK(work == nullptr);
    call.outputs = &output;
    REQUIRE(hvd_prepare(&call, &work) == HVD_OK);
    CHECK(hvd_work_poll(work) == 1);
    CHECK(hvd_work_wait(work, -1) == HVD_OK);
    CHECK(out[3] == 0);
    for (int i = 0; i < 50; ++i) {
      in[3] = static_cast<float>(i);
      REQUIRE(hvd_start(work) == HVD_OK);
      REQUIRE(hvd_work_wait(work, -1) == HVD_OK);
      REQUIRE(out[3] == static_cast<float>(i));
      in[3] = -1;
      REQUIRE(hvd_start_and_wait(work, -1) == HVD_OK);
      REQUIRE(out[3] == -1);
    }
    REQUIRE(hvd_submit(&call, &plain) == HVD_OK);
    REQUIRE(hvd_work_wait(plain, -1) == HVD_OK);
    CHECK(hvd_start(plain) == HVD_INVALID_ARGUMENT);
    CHECK(last_error_says("prepared"));
    CHECK(hvd_start_and_wait(plain, -1) == HVD_INVALID_ARGUMENT);
    hvd_work_free(plain);
    // Of the memory of its results nothing is left from the last time.
    hvd_work* gather = nullptr;
    hvd_tensor gathered;
    call.collective = HVD_ALLGATHER;
    call.outputs = nullptr;
    call.name = "gather";
    REQUIRE(hvd_prepare(&call, &gather) == HVD_OK);
    for (int i = 0; i < 3; ++i) {
      in[0] = static_cast<float>(i);
      REQUIRE(hvd_start_and_wait(gather, -1) == HVD_OK);
      REQUIRE(hvd_work_output(gather, 0, &gathered) == HVD_OK);
      CHECK(static_cast<float*>(gathered.data)[0] == static_cast<float>(i));
      CHECK(hvd_work_output(gather, 1, &gathered) == HVD_INVALID_ARGUMENT);
    }
    hvd_work_free(gather);
    call.collective = HVD_JOIN;
    call.count = 0;
    CHECK(hvd_prepare(&call, &gather) == HVD_INVALID_ARGUMENT);
  }
  CHECK(hvd_start(work) == HVD_NOT_INITIALIZED);
  CHECK(hvd_work_wait(work, -1) == HVD_OK);
  const Job later;
  CHECK(hvd_start(work) == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("prepare it again"));
  CHECK(hvd_start_and_wait(work, -1) == HVD_INVALID_ARGUMENT);
  hvd_work_free(work);
}

TEST_CASE("a callback may start another prepared operation, not the one that has called it") {
  const Job job;
  std::vector<float> in = {1, 2, 3, 4}, out(4), other_out(4);
  const hvd_tensor input = tensor_of(in), output = tensor_of(out), other_output = tensor_of(other_out);
  hvd_call call = HVD_CALL_INIT;
  call.count = 1;
  call.inputs = &input;
  call.outputs = &output;
  struct Works {
    hvd_work *first, *second;
    std::promise<hvd_status> same, other;
  } works{};
  REQUIRE(hvd_prepare(&call, &works.first) == HVD_OK);
  call.outputs = &other_output;
  REQUIRE(hvd_prepare(&call, &works.second) == HVD_OK);
  REQUIRE(hvd_start(works.first) == HVD_OK);
  REQUIRE(hvd_work_wait(works.first, -1) == HVD_OK);  // has taken its name
  REQUIRE(hvd_start(works.first) == HVD_OK);
  REQUIRE(hvd_work_on_done(
              works.first,
              [](void* argument) {
                Works& mine = *static_cast<Works*>(argument);
                const hvd_status same = hvd_start(mine.first);
                mine.other.set_value(hvd_start(mine.second));
                mine.same.set_value(same);
              },
              &works) == HVD_OK);
  CHECK(works.other.get_future().get() == HVD_OK);
  const hvd_status same = works.same.get_future().get();
  // Refused on the thread that has completed it; on this one, after its end, nothing speaks against it.
  CHECK((same == HVD_INVALID_ARGUMENT || same == HVD_OK));
  CHECK(hvd_work_wait(works.first, -1) == HVD_OK);
  CHECK(hvd_work_wait(works.second, -1) == HVD_OK);
  CHECK(other_out == in);
  hvd_work_free(works.first);
  hvd_work_free(works.second);
}

TEST_CASE("an output can be looked at, and taken over") {
  std::vector<float> in = {1, 2, 3, 4};
  const hvd_tensor input = tensor_of(in);
  hvd_tensor output;
  {
    const Job job;
    hvd_call call = HVD_CALL_INIT;
    call.collective = HVD_ALLGATHER;
    call.name = "gather";
    call.count = 1;
    call.inputs = &input;
    hvd_work* work = nullptr;
    REQUIRE(hvd_submit(&call, &work) == HVD_OK);
    REQUIRE(hvd_work_wait(work, 60'000'000) == HVD_OK);
    REQUIRE(hvd_work_output(work, 0, &output) == HVD_OK);
    CHECK((output.dimensions == 1 && output.shape[0] == 4 && output.dtype == HVD_FLOAT32));
    CHECK(hvd_work_output(work, 1, &output) == HVD_INVALID_ARGUMENT);
    REQUIRE(hvd_work_take_output(work, 0, &output) == HVD_OK);
    hvd_tensor twice{};
    CHECK(hvd_work_take_output(work, 0, &twice) == HVD_INVALID_ARGUMENT);
    CHECK(last_error_says("taken before"));
    CHECK(hvd_work_output(work, 0, &twice) == HVD_INVALID_ARGUMENT);
    CHECK(twice.data == nullptr);
    hvd_work_free(work);
  }
  CHECK(static_cast<float*>(output.data)[3] == 4);  // outlives work and runtime
  hvd_free(output.data);
}

TEST_CASE("who does not wait is called") {
  const Job job;
  std::vector<float> in = {1, 2, 3, 4}, out(4);
  const hvd_tensor input = tensor_of(in), output = tensor_of(out);
  hvd_call call = HVD_CALL_INIT;
  call.count = 1;
  call.inputs = &input;
  call.outputs = &output;
  hvd_work* work = nullptr;
  std::promise<hvd_status> ended;
  struct Call {
    hvd_work*& work;
    std::promise<hvd_status>& ended;
  } context{work, ended};
  const auto done = [](void* argument) {
    const Call& told = *static_cast<Call*>(argument);
    const hvd_status end = hvd_work_wait(told.work, 0);
    hvd_work_free(told.work);
    told.ended.set_value(end);
  };
  REQUIRE(hvd_submit(&call, &work) == HVD_OK);
  SECTION("at once or later") {}
  SECTION("at once, of an operation that has ended") { REQUIRE(hvd_work_wait(work, -1) == HVD_OK); }
  SECTION("after a wait that was given up") { static_cast<void>(hvd_work_wait(work, 0)); }
  REQUIRE(hvd_work_on_done(work, done, &context) == HVD_OK);
  auto result = ended.get_future();
  REQUIRE(result.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  CHECK(result.get() == HVD_OK);
  CHECK(out == in);
}

TEST_CASE("a callback that would wait is refused, and told so") {
  const Job job;
  struct Told {
    hvd_status run = HVD_OK, shutdown = HVD_OK, init = HVD_OK, add = HVD_OK, stop_timeline = HVD_OK;
    hvd_status topology = HVD_INTERNAL;
    std::string why;
  };
  struct Context {
    hvd_work* work = nullptr;
    std::promise<Told> told;
  } context;
  const auto done = [](void* argument) {
    auto& own = *static_cast<Context*>(argument);
    hvd_work_free(own.work);
    hvd_call call = HVD_CALL_INIT;
    call.collective = HVD_BARRIER;
    const std::int32_t rank = 0;
    std::int32_t set = 0;
    hvd_topology topology = HVD_TOPOLOGY_INIT;
    Told told;
    told.run = hvd_run(&call, -1, nullptr);
    told.init = hvd_init();
    told.add = hvd_add_process_set(&rank, 1, &set);
    told.stop_timeline = hvd_stop_timeline();
    told.shutdown = hvd_shutdown();
    told.why = hvd_last_error();
    told.topology = hvd_get_topology(&topology);
    own.told.set_value(told);
  };
  hvd_call call = HVD_CALL_INIT;
  call.collective = HVD_BARRIER;
  REQUIRE(hvd_submit(&call, &context.work) == HVD_OK);
  REQUIRE(hvd_work_on_done(context.work, done, &context) == HVD_OK);
  auto result = context.told.get_future();
  REQUIRE(result.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  const Told told = result.get();
  for (const hvd_status refused : {told.run, told.shutdown, told.init, told.add, told.stop_timeline})
    CHECK(refused == HVD_INVALID_ARGUMENT);
  CHECK(told.why.find("hvd_shutdown() was called by a callback of hvd_work_on_done()") == 0);
  CHECK(told.topology == HVD_OK);
  CHECK(hvd_is_initialized() == 1);
}

TEST_CASE("parameter servers: a call that would wait is refused in a callback, and one that returns at once is not") {
  const Job job;
  struct Context {
    hvd_ps* ps = nullptr;
    std::int32_t table = -1;
    hvd_ps_work* pushed = nullptr;
    std::promise<std::vector<std::pair<const char*, hvd_status>>> refused;
    std::promise<hvd_status> started;
  } context;
  REQUIRE(hvd_ps_connect(&context.ps) == HVD_OK);
  hvd_ps_table table = HVD_PS_TABLE_INIT;
  table.name = "sums";
  REQUIRE(hvd_ps_open(context.ps, &table, &context.table) == HVD_OK);
  const auto done = [](void* argument) {
    auto& own = *static_cast<Context*>(argument);
    const std::uint64_t key = 3;
    float row = 1;
    hvd_ps_table another = HVD_PS_TABLE_INIT;
    another.name = "another";
    std::int32_t number = -1;
    hvd_ps* second = nullptr;
    own.started.set_value(hvd_ps_push(own.ps, own.table, &key, 1, &row, &own.pushed));
    own.refused.set_value({
        {"serve", hvd_ps_serve()},
        {"connect", hvd_ps_connect(&second)},
        {"open", hvd_ps_open(own.ps, &another, &number)},
        {"pull", hvd_ps_pull(own.ps, own.table, &key, 1, &row, nullptr)},
        {"push", hvd_ps_push(own.ps, own.table, &key, 1, &row, nullptr)},
        {"set_learning_rate", hvd_ps_set_learning_rate(own.ps, own.table, 1.0F, nullptr)},
        {"flush", hvd_ps_flush(own.ps, -1)},
        {"leave", hvd_ps_leave(own.ps, -1)},
        {"close", hvd_ps_close(own.ps)},
    });
  };
  hvd_call call = HVD_CALL_INIT;
  call.collective = HVD_BARRIER;
  hvd_work* work = nullptr;
  REQUIRE(hvd_submit(&call, &work) == HVD_OK);
  REQUIRE(hvd_work_on_done(work, done, &context) == HVD_OK);
  hvd_work_free(work);
  auto refused = context.refused.get_future();
  REQUIRE(refused.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  CHECK(context.started.get_future().get() == HVD_OK);
  for (const auto& [function, status] : refused.get()) {
    INFO(function);
    CHECK(status == HVD_INVALID_ARGUMENT);
  }
  CHECK(hvd_ps_work_wait(context.pushed, -1) == HVD_OK);
  hvd_ps_work_free(context.pushed);
  CHECK(hvd_ps_close(context.ps) == HVD_OK);
}

// Each operation's callback submits the next one, on whichever thread drives, until it is told that there is no
// runtime.
TEST_CASE("callbacks that ask for the runtime while another thread shuts it down are all called") {
  struct Chain {
    std::atomic<int> submitted{0}, called{0};
    static void submit(Chain& chain) {
      hvd_call call = HVD_CALL_INIT;
      call.collective = HVD_BARRIER;
      hvd_work* work = nullptr;
      if (hvd_submit(&call, &work) != HVD_OK) return;
      ++chain.submitted;
      static_cast<void>(hvd_work_on_done(work, next, &chain));
      hvd_work_free(work);
    }
    static void next(void* argument) {
      auto& chain = *static_cast<Chain*>(argument);
      submit(chain);
      ++chain.called;
    }
  };
  for (int i = 0; i < 50; ++i) {
    const Job job;
    Chain chain;
    std::vector<std::thread> callers;
    for (const char* name : {"a", "b"}) {
      callers.emplace_back([&chain, name] {
        hvd_call call = HVD_CALL_INIT;
        call.collective = HVD_BARRIER;
        call.name = name;
        Chain::submit(chain);
        while (hvd_run(&call, -1, nullptr) == HVD_OK) continue;
      });
    }
    while (chain.called < 10) std::this_thread::yield();
    CHECK(hvd_shutdown() == HVD_OK);
    for (std::thread& caller : callers) caller.join();
    CHECK(chain.called == chain.submitted);
  }
}

TEST_CASE("nothing is left after a shutdown, although another thread that still runs has called") {
  std::mutex turn;
  std::unique_lock<std::mutex> hold(turn);
  std::vector<std::thread> callers;
  int descriptors = 0;
  for (int i = 0; i < 10; ++i) {
    const Job job;
    std::promise<hvd_status> called;
    callers.emplace_back([&] {
      hvd_topology topology = HVD_TOPOLOGY_INIT;
      std::mutex& end = turn;
      called.set_value(hvd_get_topology(&topology));
      const std::lock_guard<std::mutex> lives_on(end);
    });
    CHECK(called.get_future().get() == HVD_OK);
    CHECK(hvd_shutdown() == HVD_OK);
    if (i == 0) descriptors = hvd::testing::count_descriptors();
    CHECK(hvd::testing::count_descriptors() == descriptors);
    const int expected = 2 + i + hvd::testing::kSanitizerThreads;
    CHECK(hvd::testing::count_threads(expected) == expected);
  }
  hold.unlock();
  for (std::thread& caller : callers) caller.join();
}

TEST_CASE("a work outlives the runtime that made it") {
  hvd_work* work = nullptr;
  {
    const Job job;
    hvd_call call = HVD_CALL_INIT;
    call.collective = HVD_JOIN;
    REQUIRE(hvd_submit(&call, &work) == HVD_OK);
    REQUIRE(hvd_work_wait(work, -1) == HVD_OK);
  }
  std::int32_t last = -1;
  CHECK(hvd_work_last_joined(work, &last) == HVD_OK);
  CHECK(last == 0);
  hvd_work_free(work);
}

TEST_CASE("a forked child is refused at once, also where it holds a work of its parent's") {
  hvd_call call = HVD_CALL_INIT;
  call.collective = HVD_BARRIER;
  {
    const Job job;
    hvd_work* work = nullptr;
    REQUIRE(hvd_submit(&call, &work) == HVD_OK);
    // A child cannot allocate if another thread did so at the fork: AddressSanitizer's allocator does not prepare for
    // it.
    if (hvd::testing::kSanitized) REQUIRE(hvd_work_wait(work, -1) == HVD_OK);
    CHECK(in_forked_child([&] {
      hvd_topology topology = HVD_TOPOLOGY_INIT;
      hvd_work* another = nullptr;
      return hvd_work_wait(work, -1) == HVD_NOT_INITIALIZED && hvd_work_poll(work) == 1 && hvd_is_initialized() == 0 &&
             hvd_get_topology(&topology) == HVD_NOT_INITIALIZED && hvd_init() == HVD_NOT_INITIALIZED &&
             hvd_submit(&call, &another) == HVD_NOT_INITIALIZED && hvd_shutdown() == HVD_OK;
    }));
    CHECK(hvd_work_wait(work, -1) == HVD_OK);
    hvd_work_free(work);
  }
  CHECK(in_forked_child([] { return hvd_init() == HVD_OK && hvd_shutdown() == HVD_OK; }));
}

TEST_CASE("a forked child waits for no lock that another thread had at the fork") {
  if (hvd::testing::kSanitized) return;  // their allocators do not prepare for a fork beside other threads
  const Job job;
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over) hvd_is_initialized();
  });
  bool are_refused = true;
  for (int i = 0; are_refused && i < 300; ++i) {
    are_refused = in_forked_child([] {
      const hvd_metric* metrics = nullptr;
      std::size_t count = 0;
      return hvd_get_metrics(&metrics, &count) == HVD_NOT_INITIALIZED;
    });
  }
  is_over = true;
  other.join();
  CHECK(are_refused);
}

TEST_CASE("parameter servers: a forked child is refused at once, and its parent's connection goes on") {
  const Job job;
  hvd_ps* ps = nullptr;
  REQUIRE(hvd_ps_connect(&ps) == HVD_OK);
  hvd_ps_table table = HVD_PS_TABLE_INIT;
  hvd_ps_optimizer optimizer = HVD_PS_OPTIMIZER_INIT;
  optimizer.rule = HVD_PS_ADD;
  table.name = "sums";
  table.width = 1;
  table.optimizer = &optimizer;
  std::int32_t number = -1;
  REQUIRE(hvd_ps_open(ps, &table, &number) == HVD_OK);
  const std::uint64_t key = 7;
  float row = 1;
  hvd_ps_work* work = nullptr;
  REQUIRE(hvd_ps_push(ps, number, &key, 1, &row, &work) == HVD_OK);
  REQUIRE(hvd_ps_flush(ps, -1) == HVD_OK);
  CHECK(in_forked_child([&] {
    hvd_ps* another = nullptr;
    std::int32_t servers = 0, are_others = 0;
    const bool are_refused = hvd_ps_push(ps, number, &key, 1, &row, nullptr) == HVD_NOT_INITIALIZED &&
                             last_error_says("forked child") && hvd_ps_flush(ps, -1) == HVD_NOT_INITIALIZED &&
                             hvd_ps_clock(ps) == HVD_NOT_INITIALIZED &&
                             hvd_ps_set_learning_rate(ps, number, 1.0F, nullptr) == HVD_NOT_INITIALIZED &&
                             hvd_ps_servers(ps, &servers, &are_others) == HVD_NOT_INITIALIZED &&
                             hvd_ps_work_wait(work, -1) == HVD_NOT_INITIALIZED && hvd_ps_work_poll(work) == 1 &&
                             hvd_ps_connect(&another) == HVD_NOT_INITIALIZED &&
                             hvd_ps_leave(ps, -1) == HVD_NOT_INITIALIZED && hvd_ps_close(ps) == HVD_NOT_INITIALIZED;
    hvd_ps_work_free(work);
    hvd_ps_abandon(ps);
    return are_refused;
  }));
  CHECK(hvd_ps_work_wait(work, -1) == HVD_OK);
  hvd_ps_work_free(work);
  CHECK(hvd_ps_push_pull(ps, number, &key, 1, &row, &row, nullptr) == HVD_OK);
  CHECK(row == 2);
  CHECK(hvd_ps_close(ps) == HVD_OK);
}

TEST_CASE("parameter servers: a forked child is refused a connection that has outlived the job") {
  hvd_ps* ps = nullptr;
  {
    const Job job;
    REQUIRE(hvd_ps_connect(&ps) == HVD_OK);
  }
  CHECK(in_forked_child([&] {
    return hvd_ps_flush(ps, -1) == HVD_NOT_INITIALIZED && last_error_says("forked child") &&
           hvd_init() == HVD_NOT_INITIALIZED;
  }));
  CHECK(hvd_ps_close(ps) == HVD_OK);
  CHECK(in_forked_child([] { return hvd_init() == HVD_OK && hvd_shutdown() == HVD_OK; }));
}

TEST_CASE("parameter servers: a thread that waits for a work may outlast the connection") {
  const hvd::testing::TemporaryFolder folder;
  // The snapshot is not done until somebody reads.
  REQUIRE(mkfifo((folder / "shard-0-of-1.hvdps.unfinished").c_str(), 0600) == 0);
  setenv("HVD_START_TIMEOUT", "1", 1);               // for how long the work's client looks for the server
  setenv("HVD_STALL_CHECK_TIME_SECONDS", "0.5", 1);  // it writes to its log when the connection is long gone
  const hvd::CapturedStderr captured;
  hvd_status end = HVD_OK;
  {
    const Job job;
    hvd_ps* ps = nullptr;
    hvd_ps_work* work = nullptr;
    REQUIRE(hvd_ps_connect(&ps) == HVD_OK);
    REQUIRE(hvd_ps_snapshot(ps, folder.path().c_str(), &work) == HVD_OK);
    std::thread waiting([&] { end = hvd_ps_work_wait(work, -1); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    hvd_ps_abandon(ps);
    waiting.join();
    hvd_ps_work_free(work);
  }
  unsetenv("HVD_START_TIMEOUT");
  unsetenv("HVD_STALL_CHECK_TIME_SECONDS");
  INFO(captured.text());
  CHECK((end == HVD_PEER_LOST || end == HVD_SHUT_DOWN));  // the latter: it was not waiting yet
}

TEST_CASE("the library documents its environment") {
  CHECK(hvd_abi_version() == HVD_ABI_VERSION);
  CHECK(std::string(hvd_version()) == "0.1.0");
  CHECK(std::string(hvd_environment_documentation()).find("HVD_FUSION_THRESHOLD") != std::string::npos);
  CHECK(std::string(hvd_status_name(HVD_PEER_LOST)) == "peer lost");
}

TEST_CASE("a rank alone on its host has ordinary memory instead of an arena") {
  void* memory = nullptr;
  CHECK(hvd_alloc(100, &memory) == HVD_NOT_INITIALIZED);
  {
    const Job job;
    CHECK(hvd_alloc(100, nullptr) == HVD_INVALID_ARGUMENT);
    REQUIRE(hvd_alloc(100, &memory) == HVD_OK);
    static_cast<char*>(memory)[99] = 'x';
    hvd_arena_usage usage = HVD_ARENA_USAGE_INIT;
    REQUIRE(hvd_get_arena_usage(&usage) == HVD_OK);
    CHECK((usage.limit == 0 && usage.used == 0 && usage.peak == 0));
  }
  hvd_free(memory);
  hvd_free(nullptr);
}

TEST_CASE("metrics have names") {
  const Job job;
  const hvd_metric* metrics = nullptr;
  size_t count = 0;
  CHECK(hvd_get_metrics(nullptr, &count) == HVD_INVALID_ARGUMENT);
  CHECK(hvd_get_metrics(&metrics, nullptr) == HVD_INVALID_ARGUMENT);
  REQUIRE(hvd_get_metrics(&metrics, &count) == HVD_OK);
  REQUIRE(count > 0);
  CHECK(std::string(metrics[0].name) == "control_messages");
  CHECK(metrics[0].value == 0);
}

TEST_CASE("the table of algorithms stays until it is asked for again") {
  const char* table = nullptr;
  {
    const Job job;
    REQUIRE(hvd_get_algorithm_table(&table) == HVD_OK);
  }
  CHECK(std::string(table).find("one rank") != std::string::npos);
}

TEST_CASE("an HVD_ALGORITHM that cannot be read is an invalid argument of init") {
  setenv("HVD_ALGORITHM", "allreduce:0-64k=rign", 1);
  CHECK(hvd_init() == HVD_INVALID_ARGUMENT);
  CHECK(last_error_says("HVD_ALGORITHM='allreduce:0-64k=rign': 'rign' is no algorithm"));
  unsetenv("HVD_ALGORITHM");
  CHECK(hvd_is_initialized() == 0);
  const Job job;
}
