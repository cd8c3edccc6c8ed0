// hvd-bench: measures the time of hvd's collectives in use. Started by `hvd bench`; described in docs/benchmark.md.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <hvd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/bench/command_line.h"
#include "tools/bench/measurement.h"

namespace hvd::bench {
namespace {

constexpr int kWrongResults = 1;
constexpr int kFailed = 1;
constexpr int kUsageError = 2;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Whether a launcher started this process as one rank of a job.
bool is_rank_of_job() { return !variable("HVD_STORE").empty(); }

// Whether this is rank 0, which alone prints messages that concern all ranks.
bool is_first_rank() { return !is_rank_of_job() || variable("HVD_RANK") == "0"; }

// Replaces this process by `hvdrun -np ranks <this program> <arguments>`: the hvdrun beside this program, or else the
// one on the PATH. Throws std::runtime_error on failure.
[[noreturn]] void become_job(int ranks, const std::vector<std::string>& arguments) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path beside = self.parent_path() / "hvdrun";
  std::vector<std::string> words{access(beside.c_str(), X_OK) == 0 ? beside.string() : "hvdrun", "-np",
                                 std::to_string(ranks), self.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw std::runtime_error("cannot start hvdrun: " + std::string(std::strerror(errno)));
}

void show(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Called before measuring, so that an invalid name is reported at once.
std::ofstream open_json(const std::string& path) {
  std::ofstream file;
  if (path.empty() || !is_first_rank()) return file;
  file.open(path);
  if (!file) throw std::invalid_argument("--json " + path + ": cannot write this file");
  return file;
}

// Whether the ranks of every host share memory for tensors; the same on all ranks.
bool has_arena() {
  hvd_arena_usage usage = HVD_ARENA_USAGE_INIT;
  hvd_get_arena_usage(&usage);
  bool shared[] = {usage.limit > 0};
  allreduce(shared, min);
  return shared[0];
}

void check_job(const Settings& settings) {
  if (settings.ranks && *settings.ranks != size()) {
    throw std::invalid_argument("-np " + std::to_string(*settings.ranks) + ": this job has " + std::to_string(size()) +
                                " ranks already");
  }
  if (settings.arena && !has_arena()) {
    throw std::invalid_argument(
        "--arena: some ranks share no memory with others (one rank on a host, "
        "HVD_SHARED_MEMORY=0 or HVD_ARENA_LIMIT=0)");
  }
}

// The requested rows, with tensors that can be divided among the ranks; without duplicates.
std::vector<TensorSet> rows_for(const Settings& settings, int ranks) {
  std::vector<TensorSet> rows;
  for (const TensorSet& wanted : settings.rows) {
    TensorSet row = divisible(wanted, divides(settings.collective) ? ranks : 1);
    if (rows.empty() || row != rows.back()) rows.push_back(std::move(row));
  }
  return rows;
}

int run(const Settings& settings) {
  std::ofstream file = open_json(settings.json);
  const Session session;
  check_job(settings);
  const bool shows = rank() == 0;
  const Job job{.ranks = size(), .hosts = cross_size(), .version = hvd_version()};
  if (shows) show(heading(settings, job));
  std::vector<Measured> results;
  bool right = true;
  for (const TensorSet& row : rows_for(settings, job.ranks)) {
    results.push_back(measure(settings, row));
    right = right && results.back().errors == 0;
    if (shows) show(table_row(settings, results.back()));
  }
  if (file.is_open()) {
    file << json_text(settings, job, results);
    if (!file.flush()) throw std::runtime_error("--json " + settings.json + ": writing failed");
  }
  barrier();  // no rank leaves while others still work
  return right ? 0 : kWrongResults;
}

// Reports an error that concerns all ranks once.
int usage_error(const std::exception& error) {
  if (is_first_rank()) std::fprintf(stderr, "hvd bench: %s (--help shows the options)\n", error.what());
  return kUsageError;
}

int bench(const std::vector<std::string>& arguments) {
  const Settings settings = parse_command_line(arguments);
  if (settings.information) {
    if (is_first_rank()) show(*settings.information);
    return 0;
  }
  if (settings.ranks && !is_rank_of_job()) become_job(*settings.ranks, arguments);
  return run(settings);
}

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  using namespace hvd::bench;
  try {
    return hvd::bench::bench({argv + 1, argv + argc});
  } catch (const std::invalid_argument& error) {
    return usage_error(error);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hvd bench: there is not so much memory\n");
    return kFailed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hvd bench: %s\n", error.what());
    return kFailed;
  }
}
