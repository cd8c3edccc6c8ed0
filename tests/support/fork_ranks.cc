#include "tests/support/fork_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "core/base/error.h"
#include "core/bootstrap/rendezvous.h"
#include "core/bootstrap/store.h"
#include "ops/registry.h"

namespace hvd::testing {

namespace {

using Pipe = std::array<int, 2>;

std::string read_line(int fd) {
  std::string line;
  for (char c = 0; read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

int run_child(int rank, int size, const Environment& environment, const JobKey& key, const std::string& address,
              const ForkedRanks::Body& body) {
  Environment own = environment;
  own["HVD_RANK"] = std::to_string(rank);
  own["HVD_SIZE"] = std::to_string(size);
  own.emplace("HVD_LOG_LEVEL", "off");
  const Config config = read_config(own).config;
  int epoch = 0;
  const auto start = [&] {
    const std::string prefix = std::to_string(++epoch) + "/";
    const Store store = Store::connect(Address::parse(address), key, rank, deadline_after(config.timeouts.start));
    return std::make_unique<Runtime>(
        config, Runtime::Dependencies{.store = store.with_prefix(prefix),
                                      .job_key = key,
                                      .identity = identify_this_process(config.job.host_id, "test-host"),
                                      .local_host_address = "127.0.0.1",
                                      .make_data_plane = make_data_plane,
                                      .make_channel = make_channel});
  };
  try {
    return body(rank, start);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 99;
  }
}

}  // namespace

ForkedRanks::ForkedRanks(int size, const Environment& environment, const Body& body, int ranks_per_host)
    : log_("test", LogLevel::off) {
  const JobKey key = JobKey::random();
  std::vector<Pipe> pipes(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Pipe& to_child = pipes[static_cast<std::size_t>(rank)];
    if (pipe(to_child.data()) != 0) throw Internal("no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      close(to_child[1]);
      const std::string address = read_line(to_child[0]);
      Environment own = environment;
      if (ranks_per_host > 0) own["HVD_HOST_ID"] = "host-" + std::to_string(rank / ranks_per_host);
      _exit(address.empty() ? 98 : run_child(rank, size, own, key, address, body));
    }
    pids_.push_back(pid);
    close(to_child[0]);
  }
  server_ = std::make_unique<StoreServerThread>(key, "127.0.0.1", log_);
  const std::string address = server_->address().to_string() + "\n";
  for (const Pipe& to_child : pipes) {
    if (write(to_child[1], address.data(), address.size()) < 0) throw Internal("a rank is gone already");
    close(to_child[1]);
  }
}

ForkedRanks::~ForkedRanks() {
  for (const pid_t pid : pids_) {
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
}

void ForkedRanks::kill(int rank, int signal) const { ::kill(pid(rank), signal); }

int ForkedRanks::wait(int rank) {
  int status = 0;
  pid_t& pid = pids_[static_cast<std::size_t>(rank)];
  if (waitpid(pid, &status, 0) != pid) return -1;
  pid = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace hvd::testing
