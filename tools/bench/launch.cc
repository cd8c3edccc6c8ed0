#include "tools/bench/launch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace hvd::bench {

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool is_rank_of_job() { return !variable("HVD_STORE").empty(); }

bool is_first_rank() { return !is_rank_of_job() || variable("HVD_RANK") == "0"; }

void become_job(int ranks, const std::vector<std::string>& arguments) {
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

}  // namespace hvd::bench
