// Servers as processes that are killed while a shard moves between them: nothing of the last snapshot is lost.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/rendezvous.h"
#include "core/bootstrap/store_server.h"
#include "parameters/client.h"
#include "parameters/server.h"
#include "parameters/shard_directory.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace hvd {
namespace {

constexpr Duration kTrialTimeout = 30s;
constexpr int kServers = 2, kParts = 2;

// Processes that were forked before this one had threads. Each waits until it is to be a server.
class Processes {
 public:
  explicit Processes(int count) {
    for (int i = 0; i < count; ++i) {
      std::array<int, 2> orders{};
      REQUIRE(pipe(orders.data()) == 0);
      const pid_t pid = fork();
      if (pid == 0) {
        close(orders[1]);
        _exit(serve(orders[0]));
      }
      close(orders[0]);
      waiting_.push_back({pid, orders[1]});
    }
  }
  ~Processes() {
    for (const Waiting& process : waiting_) close(process.orders);  // they end
    for (const pid_t pid : running_) kill(pid);
    for (const Waiting& process : waiting_) waitpid(process.pid, nullptr, 0);
  }

  void start(int server, const std::string& store, const std::string& folder) {
    const Waiting process = waiting_.back();
    waiting_.pop_back();
    const std::string orders = store + " " + key.to_hex() + " " + std::to_string(server) + " " + folder + "\n";
    REQUIRE(write(process.orders, orders.data(), orders.size()) == static_cast<ssize_t>(orders.size()));
    close(process.orders);
    running_[static_cast<std::size_t>(server)] = process.pid;
  }

  // A move begins with a connection to the server that gets the shard.
  std::ptrdiff_t descriptors_of(int server) const {
    const std::string pid = std::to_string(running_[static_cast<std::size_t>(server)]);
    return std::distance(std::filesystem::directory_iterator("/proc/" + pid + "/fd"), {});
  }

  void kill_server(int server) { kill(std::exchange(running_[static_cast<std::size_t>(server)], 0)); }

  const JobKey key = JobKey::random();

 private:
  struct Waiting {
    pid_t pid;
    int orders;
  };

  static void kill(pid_t pid) {
    if (pid == 0) return;
    ::kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  static int serve(int orders) {
    char line[1024] = {}, address[128] = {}, key_text[128] = {}, folder[512] = {};
    int server = 0;
    if (read(orders, line, sizeof line - 1) <= 0) return 0;
    if (std::sscanf(line, "%127s %127s %d %511s", address, key_text, &server, folder) != 4) return 98;
    const Log log("test", LogLevel::off);
    try {
      const JobKey key = JobKey::from_hex(key_text);
      const Store store = Store::connect(Address::parse(address), key, server, deadline_after(kTrialTimeout));
      ParameterServer({.server = server, .servers = kServers, .parts = kParts, .snapshot = folder, .host_key = "here"},
                      store, key, log)
          .run();
    } catch (const std::exception&) {
      return 99;
    }
    return 0;
  }

  std::vector<Waiting> waiting_;
  std::array<pid_t, kServers> running_{};
};

TEST_CASE("servers are killed while a shard moves between them") {
  constexpr int kTrials = 12;
  const testing::TemporaryFolder folder;
  Processes processes(kServers + kTrials);
  const Log log("test", LogLevel::off);
  const StoreServerThread store_server(processes.key, "127.0.0.1", log);
  const std::string address = store_server.address().to_string();
  for (int server = 0; server < kServers; ++server) processes.start(server, address, folder.path());
  const Store store = Store::connect(store_server.address(), processes.key, 0, deadline_after(kTrialTimeout));
  const WorkerOptions options{.servers = kServers,
                              .parts = kParts,
                              .start_timeout = kTrialTimeout,
                              .host_key = "here",
                              .wait = kOversubscribedPolicy};
  ParameterClient worker(options, store, processes.key, log);
  const auto answered = [&](const ParameterClient::CallReference& call) {
    REQUIRE(worker.wait(call, deadline_after(kTrialTimeout)));
  };
  TableSpec spec;
  spec.name = "kept";
  spec.width = 256;
  spec.optimizer = {.rule = UpdateRule::add};
  const int table = worker.open(spec);
  std::vector<std::uint64_t> keys(4000);
  std::iota(keys.begin(), keys.end(), std::uint64_t{0});
  const std::vector<float> ones(keys.size() * spec.width, 1.0f);
  const ShardDirectory directory(store, kServers);
  std::mt19937 dice(7);
  for (int trial = 1; trial <= kTrials; ++trial) {
    answered(worker.push(table, {.keys = keys, .gradients = ones.data()}));
    answered(worker.snapshot(folder.path()));
    const int from = directory.server_of(0), to = 1 - from;
    const auto before = processes.descriptors_of(to);
    directory.want(0, from, to);
    const Deadline begins = deadline_after(kTrialTimeout);
    while (processes.descriptors_of(to) == before && Clock::now() < begins) std::this_thread::yield();
    const Deadline dies = deadline_after(std::chrono::microseconds(dice() % 20'000));  // it may be over then
    while (Clock::now() < dies) {
    }
    const int killed = static_cast<int>(dice() % kServers);
    processes.kill_server(killed);
    processes.start(killed, address, folder.path());
    std::vector<float> rows(ones.size());
    answered(worker.pull(table, {.keys = keys, .rows = rows.data()}));
    CAPTURE(trial, from, killed);
    REQUIRE(rows == std::vector<float>(ones.size(), static_cast<float>(trial)));
    const Deadline deadline = deadline_after(kTrialTimeout);
    while (directory.server_of(0) != directory.wanted_server_of(0) && Clock::now() < deadline) {
      std::this_thread::sleep_for(1ms);
    }
    REQUIRE(directory.server_of(0) == directory.wanted_server_of(0));
  }
  answered(worker.leave());
}

}  // namespace
}  // namespace hvd
