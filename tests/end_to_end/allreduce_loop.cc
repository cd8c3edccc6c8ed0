// A job for tests of what happens to jobs: one allreduce after the other, whose sums every rank knows beforehand.
//
//   allreduce_loop [--bytes N] [--steps N] [--until PATH] [--delay MS] [--announce N] [--times PATH] [--linger MS]
//                  [--failures FOLDER] [--metric NAME]...
//
// Each rank says on its standard output, a line at a time, where it is:
//
//   starting            before it joins the job
//   joined RANK SIZE    all are there
//   negotiating         before the first allreduce
//   step N              after the first, and then each --announce'th one, 100 unless told; 0: none
//   NAME VALUE          for each --metric, after the last step: what the loop has added to it
//   shutting down       before it leaves the job
//   left                after it, for as long as it lingers
//   done N              after N steps
//   failed TIME STEP TEXT    instead of what would follow: when (CLOCK_MONOTONIC, in seconds), in which step, and why;
//   it is also
//                            in FOLDER/RANK
//
// Exit code: 0, all sums were right; 3, failed; 4, a sum was wrong.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <hvd.hpp>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kFailed = 3;
constexpr int kWrong = 4;

struct Options {
  std::size_t bytes = 4096;
  long steps = 0;       // 0: until told
  std::string until{};  // the job ends with the step before which rank 0 sees this file
  double delay_ms = 0;  // before each step
  long announce = 100;
  std::string times{};     // a file for "start duration" of each step, in us: rank 0's
  double linger_ms = 0;    // between leaving the job and the end
  std::string failures{};  // a folder
  std::vector<std::string> metrics{};
};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::int64_t now_us() {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since_start).count();
}

void sleep_for(double ms) {
  if (ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

// Element i of step s is (s + i) % kPeriod times a factor, which is a rank's number + 1; sums of these are exact. The
// first element is rank 0's wish to end.
constexpr std::size_t kPeriod = 61;

// All steps' elements: those of step s begin at s % kPeriod. Copying and comparing them takes a tenth of computing
// them.
std::vector<float> elements_of_all_steps(std::size_t count, int factor) {
  std::vector<float> elements(count + kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) elements[i] = static_cast<float>(i) * static_cast<float>(factor);
  for (std::size_t known = kPeriod; known < elements.size(); known *= 2) {
    std::copy_n(elements.data(), std::min(known, elements.size() - known), elements.data() + known);
  }
  return elements;
}

class Loop {
 public:
  Loop(const Options& options, const hvd_topology& job)
      : options_(options),
        job_(job),
        values_(std::max<std::size_t>(2, options.bytes / sizeof(float))),
        given_(elements_of_all_steps(values_.size(), job.rank + 1)),
        sums_(elements_of_all_steps(values_.size(), job.size * (job.size + 1) / 2)) {
    if (job.rank == 0 && !options.times.empty()) times_.open(options.times);
  }

  long step() const { return step_; }

  // False: a sum was wrong.
  bool run() {
    for (bool last = false; !last; ++step_) {
      sleep_for(options_.delay_ms);
      fill();
      const std::int64_t start = now_us();
      hvd::allreduce(values_, hvd::sum, {.name = "loop"});
      if (times_.is_open()) times_ << start << ' ' << now_us() - start << '\n';
      if (!right()) return false;
      if (options_.announce > 0 && step_ % options_.announce == 0) say("step " + std::to_string(step_));
      last = values_[0] > 0;
    }
    return true;
  }

 private:
  bool wants_to_end() const {
    if (job_.rank != 0) return false;
    if (options_.steps > 0 && step_ + 1 >= options_.steps) return true;
    return !options_.until.empty() && std::filesystem::exists(options_.until);
  }

  std::size_t offset_of_step() const { return static_cast<std::size_t>(step_) % kPeriod; }

  void fill() {
    std::copy_n(given_.data() + offset_of_step(), values_.size(), values_.data());
    values_[0] = wants_to_end() ? 1 : 0;
  }

  bool right() const {
    return std::memcmp(&values_[1], &sums_[offset_of_step() + 1], (values_.size() - 1) * sizeof(float)) == 0;
  }

  const Options& options_;
  const hvd_topology job_;
  std::vector<float> values_;
  const std::vector<float> given_;
  const std::vector<float> sums_;
  std::ofstream times_;
  long step_ = 0;
};

int fail(const Options& options, long step, const char* text) {
  const std::string line =
      "failed " + std::to_string(static_cast<double>(now_us()) / 1e6) + " " + std::to_string(step) + " " + text;
  const char* const rank = std::getenv("HVD_RANK");
  if (!options.failures.empty() && rank != nullptr) std::ofstream(options.failures + "/" + rank) << line << '\n';
  say(line);
  return kFailed;
}

int run(const Options& options) {
  say("starting");
  try {
    hvd::init();
  } catch (const std::exception& error) {
    return fail(options, -1, error.what());
  }
  const hvd_topology job = hvd::topology();
  say("joined " + std::to_string(job.rank) + " " + std::to_string(job.size));
  say("negotiating");
  Loop loop(options, job);
  const std::map<std::string, double> before = hvd::metrics();
  try {
    if (!loop.run()) {
      say("wrong " + std::to_string(loop.step()));
      return kWrong;
    }
    for (const auto& [name, value] : hvd::metrics()) {
      if (std::count(options.metrics.begin(), options.metrics.end(), name) == 0) continue;
      say(name + " " + std::to_string(std::llround(value - before.at(name))));
    }
    say("shutting down");
    hvd::shutdown();
  } catch (const std::exception& error) {
    return fail(options, loop.step(), error.what());
  }
  if (options.linger_ms > 0) say("left");
  sleep_for(options.linger_ms);
  say("done " + std::to_string(loop.step()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"One allreduce after the other, for tests"};
  app.add_option("--bytes", options.bytes, "of an allreduce");
  app.add_option("--steps", options.steps, "number of allreduces; 0: no end");
  app.add_option("--until", options.until, "end when this file exists");
  app.add_option("--delay", options.delay_ms, "milliseconds before each step");
  app.add_option("--announce", options.announce, "every so many steps");
  app.add_option("--times", options.times, "file for rank 0's steps: start and duration in us, a line each");
  app.add_option("--linger", options.linger_ms, "milliseconds between leaving the job and the end");
  app.add_option("--failures", options.failures, "folder for a file with each rank's failure");
  app.add_option("--metric", options.metrics, "say what the loop has added to it");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
