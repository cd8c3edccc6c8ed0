#include "tests/bench/job.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "core/base/error.h"
#include "core/bootstrap/rendezvous.h"
#include "core/bootstrap/store_server.h"
#include "core/execution/backend.h"
#include "ops/registry.h"

namespace hvd::bench {

namespace {

constexpr Duration kFileWait = 30s;
constexpr Duration kFilePoll = 10ms;

// Where the store is, and what opens it.
struct Rendezvous {
  Address store;
  JobKey key;
};

// A child that does not outlive this process.
template <typename Body>
pid_t fork_child(const Body& body) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  try {
    body();
    std::fflush(nullptr);
    _exit(EXIT_SUCCESS);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(EXIT_FAILURE);
  }
}

// The store in a process of its own, so that ranks can be forked from one that has a single thread.
class StoreProcess {
 public:
  StoreProcess(const JobKey& key, const std::string& host) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Internal("no pipe");
    const FileDescriptor from_child(ends[0]);
    FileDescriptor to_parent(ends[1]);
    pid_ = fork_child([&] {
      const Log log("store", LogLevel::warning);
      const StoreServerThread server(key, host, log);
      const std::string address = server.address().to_string();
      if (write(to_parent.get(), address.data(), address.size()) < 0) throw Internal("nobody wants the store");
      to_parent.reset();
      pause();
    });
    to_parent.reset();
    std::array<char, 256> text{};
    const ssize_t length = read(from_child.get(), text.data(), text.size());
    if (length <= 0) throw Internal("the store did not start");
    address_ = Address::parse({text.data(), static_cast<std::size_t>(length)});
  }
  ~StoreProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  const Address& address() const { return address_; }

 private:
  pid_t pid_;
  Address address_;
};

// Complete at once for whoever sees the name.
void write_rendezvous(const std::string& path, const Rendezvous& rendezvous) {
  const std::string unfinished = path + ".part";
  const FileDescriptor file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string text = rendezvous.store.to_string() + " " + rendezvous.key.to_hex() + "\n";
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(unfinished.c_str(), path.c_str()) != 0) {
    throw InvalidArgument("cannot write " + path);
  }
}

Rendezvous read_rendezvous(const std::string& path) {
  const Deadline deadline = deadline_after(kFileWait);
  std::string address;
  std::string key;
  while (!(std::ifstream(path) >> address >> key)) {
    if (Clock::now() > deadline) throw Timeout("waiting for host 0 to write " + path);
    std::this_thread::sleep_for(kFilePoll);
  }
  return {Address::parse(address), JobKey::from_hex(key)};
}

void pin_to_cpu(int number) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw Internal("sched_getaffinity");
  int left = number % CPU_COUNT(&allowed);
  std::size_t cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || left-- > 0) ++cpu;
  CPU_ZERO(&allowed);
  CPU_SET(cpu, &allowed);
  if (sched_setaffinity(0, sizeof allowed, &allowed) != 0) throw Internal("sched_setaffinity");
}

void run_rank(const JobOptions& options, int local_rank, const Rendezvous& rendezvous,
              const std::function<void(Member&)>& body) {
  const int rank = options.host * options.ranks_per_host + local_rank;
  try {
    if (options.new_sessions) setsid();
    if (options.pin) pin_to_cpu(local_rank);
    setenv("HVD_RANK", std::to_string(rank).c_str(), 1);
    setenv("HVD_SIZE", std::to_string(options.size()).c_str(), 1);
    setenv("HVD_STORE", rendezvous.store.to_string().c_str(), 1);
    setenv("HVD_JOB_KEY", rendezvous.key.to_hex().c_str(), 1);
    const Config config = read_config(process_environment()).config;
    Store store = Store::connect(rendezvous.store, rendezvous.key, rank, deadline_after(config.timeouts.start));
    Member member(config, store, rendezvous.key, store.local_host());
    store = Store();  // disconnects
    body(member);
    // Nobody leaves while others still work.
    member.barrier();
  } catch (const std::exception& error) {
    throw Internal("rank " + std::to_string(rank) + ": " + error.what());
  }
}

// True if all ended well. The first that does not takes the others with it.
bool wait_for(std::vector<pid_t> ranks) {
  bool well = true;
  while (!ranks.empty()) {
    int status = 0;
    const pid_t ended = wait(&status);
    // Ends with an error if it is the store that ended, which does not do so by itself.
    const bool known = std::erase(ranks, ended) > 0;
    if (known && status == 0) continue;
    if (well) {
      for (const pid_t rank : ranks) kill(rank, SIGKILL);
    }
    well = false;
  }
  return well;
}

ProcessSet all_ranks(int size) {
  ProcessSet set{.id = kGlobalProcessSet, .ranks = std::vector<int>(static_cast<std::size_t>(size))};
  std::iota(set.ranks.begin(), set.ranks.end(), 0);
  return set;
}

RankIdentity local_identity(const Config& config) {
  RankIdentity identity = identify_this_process(config.job.host_id, config.job.hostname);
  identity.settings = shared_settings(config);
  return identity;
}

}  // namespace

Member::Member(const Config& config, Store& store, const JobKey& key, const std::string& local_host_address)
    : topology_(make_topology(config.job.rank,
                              exchange_identities(store, config.job.rank, config.job.size, local_identity(config),
                                                  deadline_after(config.timeouts.start)))),
      log_("rank " + std::to_string(config.job.rank), config.diagnosis.log_level),
      everyone_(all_ranks(config.job.size)),
      data_plane_(make_data_plane(BackendContext{.topology = topology_,
                                                 .store = store,
                                                 .job_key = key,
                                                 .config = config,
                                                 .abort = abort_,
                                                 .log = log_,
                                                 .local_host_address = local_host_address,
                                                 .deadline = deadline_after(config.timeouts.start)})) {
  check_settings(topology_);
  if (rank() == 0) log_.info(data_plane_.algorithms);
}

Backend& Member::backend_for(const CollectiveCall& call) const { return select_backend(data_plane_.backends, call); }

void Member::barrier() {
  CollectiveCall call;
  call.collective = Collective::barrier;
  call.set = &everyone_;
  run(backend_for(call), call);
}

std::int64_t Member::agree(std::int64_t value) {
  CollectiveCall call;
  call.collective = Collective::broadcast;
  call.dtype = DType::int64;
  call.set = &everyone_;
  call.pieces.push_back({.input = &value, .output = &value, .elements = 1});
  run(backend_for(call), call);
  return value;
}

bool run_job(const JobOptions& options, const std::function<void(Member&)>& body) {
  std::unique_ptr<StoreProcess> store;
  Rendezvous rendezvous;
  if (options.host == 0) {
    rendezvous.key = JobKey::random();
    store = std::make_unique<StoreProcess>(rendezvous.key, options.hosts == 1 ? "127.0.0.1" : options.address);
    rendezvous.store = store->address();
    if (options.hosts > 1) write_rendezvous(options.store, rendezvous);
  } else {
    rendezvous = read_rendezvous(options.store);
  }
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < options.ranks_per_host; ++rank) {
    ranks.push_back(fork_child([&] { run_rank(options, rank, rendezvous, body); }));
  }
  const bool well = wait_for(std::move(ranks));
  // Whoever finds the file of an earlier run would wait for a store that is gone.
  if (options.hosts > 1 && options.host == 0) std::remove(options.store.c_str());
  return well;
}

}  // namespace hvd::bench
