// What the library registers, and what it says of a process in which it cannot.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bindings/tensorflow/job.h"

namespace hvd::testing {

namespace {

bool has(const std::string& text, const std::string& piece) { return text.find(piece) != std::string::npos; }

// In a process of its own, which has `tensorflow` instead of the fake one; null: none at all. This executable has the
// fake one from its start, so it is another executable that looks.
std::string problem_with(const char* tensorflow) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(built::test_loading_program, "loading_program", built::tensorflow, tensorflow, nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  return text;
}

}  // namespace

TEST_CASE("each collective is two ops, of which one is stateful") {
  REQUIRE(load_ops().empty());
  for (const char* name : {"HvdAllreduce", "HvdReducescatter", "HvdAllgather", "HvdBroadcast", "HvdAlltoall"}) {
    INFO(name);
    CHECK_FALSE(registry().ops.at(name).stateful);
    CHECK(registry().ops.at(std::string(name) + "Ordered").stateful);
  }
  for (const char* name : {"HvdBarrier", "HvdJoin", "HvdRank", "HvdSize", "HvdProcessSetIncluded"}) {
    INFO(name);
    CHECK(registry().ops.at(name).stateful);
  }
  for (const auto& [name, op] : registry().ops) {
    INFO(name);
    CHECK(registry().kernels.count({name, "CPU"}) == 1);
  }
}

TEST_CASE("shapes are those of the inputs where they stay, and else open") {
  REQUIRE(load_ops().empty());
  const std::vector<Dims> inputs{{2, 3}, {}};
  CHECK(infer_shapes("HvdAllreduceOrdered", inputs, 2) == std::vector<std::optional<Dims>>{{{2, 3}}, {Dims{}}});
  CHECK(infer_shapes("HvdBroadcastOrdered", inputs, 2) == std::vector<std::optional<Dims>>{{{2, 3}}, {Dims{}}});
  CHECK(infer_shapes("HvdAllreduce", {{2, 3}, {}}, 1) == std::vector<std::optional<Dims>>{{{2, 3}}});  // unforeseen
  CHECK(infer_shapes("HvdAllgather", inputs, 2) == std::vector<std::optional<Dims>>(2));
  CHECK(infer_shapes("HvdRank", {}, 1) == std::vector<std::optional<Dims>>{{Dims{}}});
  for (const char* function : {"TF_ShapeInferenceContextGetInput", "TF_ShapeInferenceContextSetOutput"}) {
    fail_in(function, 1);
    CHECK_THROWS_WITH(infer_shapes("HvdAllreduceOrdered", inputs, 2), std::string(function) + " was told to fail");
    nothing_fails();
  }
  CHECK(Counted::live == 0);
}

TEST_CASE("what keeps the ops from being registered is said") {
  CHECK(problem_with(nullptr) == "no TensorFlow of 2.13 or later is loaded in this process");
  CHECK(has(problem_with(built::lacking_tensorflow), "this TensorFlow has no TF_"));
  CHECK(has(problem_with(built::alien_tensorflow), "this TensorFlow was not built with libstdc++"));
  CHECK(problem_with(built::fake_tensorflow).empty());
}

}  // namespace hvd::testing
