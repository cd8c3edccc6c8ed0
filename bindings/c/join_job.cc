#include <unistd.h>

#include <utility>

#include "bindings/c/instance.h"
#include "core/base/error.h"
#include "core/bootstrap/launch_environment.h"
#include "core/bootstrap/store.h"
#include "ops/registry.h"

namespace hvd {

namespace {

// Timeouts for the store's answer whether the job has failed: while waiting, and after a peer was lost.
constexpr Duration kAnswerTimeout = std::chrono::milliseconds(20);
constexpr Duration kCauseTimeout = std::chrono::milliseconds(300);

// A runtime and its dependencies, destroyed in the opposite order.
struct Job {
  std::unique_ptr<Log> log;  // of the store server
  std::unique_ptr<StoreServerThread> server;
  std::unique_ptr<Runtime> runtime;
};

std::shared_ptr<Runtime> runtime_of(std::shared_ptr<Job> job) {
  Runtime* const runtime = job->runtime.get();
  return {std::move(job), runtime};
}

std::unique_ptr<Runtime> make_runtime(const Config& config, const Store& store, const JobKey& key,
                                      const std::string& local_host) {
  return std::make_unique<Runtime>(
      config, Runtime::Dependencies{.store = store,
                                    .job_key = key,
                                    .identity = identify_this_process(config.job.host_id, config.job.hostname),
                                    .local_host_address = local_host,
                                    .make_data_plane = make_data_plane,
                                    .make_channel = make_channel});
}

std::shared_ptr<JobServices> make_job_services(const Config& config, const Store& store, const JobKey& key,
                                               const std::string& local_host) {
  return std::make_shared<JobServices>(
      JobServices{.store = store,
                  .key = key,
                  .config = config,
                  .local_host = local_host,
                  .host_key = identify_this_process(config.job.host_id, config.job.hostname).host_key});
}

JoinedJob start_alone(const Config& config) {
  const auto job = std::make_shared<Job>();
  const Store store;
  const JobKey key = JobKey::random();
  job->runtime = make_runtime(config, store, key, "127.0.0.1");
  return {
      .runtime = runtime_of(job), .member = nullptr, .services = make_job_services(config, store, key, "127.0.0.1")};
}

// The numeric address at which other ranks reach this one.
std::string address_of(const Config& config, const Store& store) {
  return config.job.address.empty() ? store.local_host() : config.job.address;
}

// The store whose address hvdrun has put into the environment.
JobStore store_of_hvdrun(const Config& config, Deadline deadline) {
  if (config.job.store.empty() || config.job.key.empty()) {
    const std::string given = config.job.process >= 0 ? "HVD_PROCESS is " + std::to_string(config.job.process)
                                                      : "HVD_SIZE is " + std::to_string(config.job.size);
    throw InvalidArgument(given + " but " + (config.job.store.empty() ? "HVD_STORE" : "HVD_JOB_KEY") +
                          " is not set: start the processes with hvdrun");
  }
  const JobKey key = JobKey::from_hex(config.job.key);
  const int number = config.job.process >= 0 ? config.job.process : config.job.rank;
  return {
      .key = key, .server = nullptr, .store = Store::connect(Address::parse(config.job.store), key, number, deadline)};
}

// For launchers that give all ranks the address of rank 0's store, while the user provides the job key.
JobStore store_of_user(const Launch& launch, const Config& config, int epoch, const Log& log, Deadline deadline,
                       const std::string& without_key) {
  if (config.job.key.empty()) {
    const std::string who =
        launch.server < 0
            ? " as rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.size)
            : " as parameter server " + std::to_string(launch.server) + " of " + std::to_string(launch.servers);
    throw InvalidArgument(std::string("started by ") + launcher_name(launch.launcher) + who +
                          ", without a secret of the job: " + without_key);
  }
  return rendezvous_at(store_address(launch, epoch), JobKey::from_hex(config.job.key), launch.rank, log, deadline);
}

// Slurm distributes no secret: MPI does if srun supports it, otherwise the user must.
JobStore store_of_slurm(const Launch& launch, const Config& config, int epoch, const Log& log, Deadline deadline) {
  std::string without_mpi = "srun was not asked to support MPI (--mpi=pmix or pmi2)";
  if (launch.mpi && config.job.key.empty()) {
    try {
      return rendezvous_by_broadcast(launcher_rendezvous(launch, config), log, deadline);
    } catch (const Unsupported& error) {
      without_mpi = error.what();
    }
  }
  return store_of_user(launch, config, epoch, log, deadline,
                       without_mpi + ". Set one before srun: export HVD_JOB_KEY=$(openssl rand -hex 32)");
}

JobStore store_of(const Launch& launch, const Config& config, int epoch, const Log& log, Deadline deadline) {
  switch (launch.launcher) {
    case Launcher::hvdrun: return store_of_hvdrun(config, deadline);
    case Launcher::open_mpi:
    case Launcher::mpich: return rendezvous_by_broadcast(launcher_rendezvous(launch, config), log, deadline);
    case Launcher::slurm: return store_of_slurm(launch, config, epoch, log, deadline);
    case Launcher::tf_config:
      return store_of_user(launch, config, epoch, log, deadline,
                           "TF_CONFIG has none. Make one with openssl rand -hex 32, and set HVD_JOB_KEY to it in all "
                           "processes of the cluster");
    case Launcher::rendezvous:
      return store_of_user(launch, config, epoch, log, deadline,
                           "HVD_RENDEZVOUS is no secret. Make one with openssl rand -hex 32, and set HVD_JOB_KEY to it "
                           "in all processes of the job; in Kubernetes, from a Secret");
    case Launcher::torchrun:
      throw InvalidArgument(
          "started by torchrun, whose store is reached from Python: call hvd.init() of the Python package, or "
          "hvd_init_with()");
    case Launcher::none: break;
  }
  throw Internal("nobody has started this job");
}

// Checks that all ranks that the launcher placed on one host share memory, unless HVD_HOST_ID is set. There may be more
// of them: several of torchrun's agents may run on a host, and each counts its own ranks.
void check_promise(const Launch& launch, const Config& config, const Topology& topology) {
  if (launch.local_size <= topology.local_size || !config.job.host_id.empty()) return;
  throw Mismatch((launch.launcher == Launcher::none ? "the caller" : launcher_name(launch.launcher)) +
                 std::string(" has put ") + std::to_string(launch.local_size) + " ranks on this host, but " +
                 std::to_string(topology.local_size) +
                 " have come that can share memory: " + topology.describe(topology.rank) +
                 " may be in a container of its own; HVD_HOST_ID says which ranks are together");
}

JoinedJob start_together(const Config& config, const Launch& launch, const std::optional<Rendezvous>& rendezvous,
                         int epoch) {
  const auto job = std::make_shared<Job>();
  job->log = std::make_unique<Log>("rank " + std::to_string(config.job.rank), config.diagnosis.log_level);
  const Deadline deadline = deadline_after(config.timeouts.start);
  JobStore job_store = rendezvous ? rendezvous_by_broadcast(*rendezvous, *job->log, deadline)
                                  : store_of(launch, config, epoch, *job->log, deadline);
  // Rank 0's store is new in each epoch, that of hvdrun is not.
  const int in_store = launch.launcher == Launcher::hvdrun ? epoch : 0;
  job->server = std::move(job_store.server);
  const bool is_told_of_failures = launch.launcher == Launcher::hvdrun;
  const auto check = [store = job_store.store, is_told_of_failures](Duration timeout) {
    if (is_told_of_failures) check_job_failure(store, deadline_after(timeout));
  };
  const Store store =
      job_store.store.with_prefix(epoch_prefix(in_store)).with_alarm([check] { check(kAnswerTimeout); });
  try {
    job->runtime = make_runtime(config, store, job_store.key, address_of(config, job_store.store));
  } catch (const Error& error) {
    // The lost rank may have left because of another rank, whose failure the launcher has reported in the store.
    if (error.code() == StatusCode::peer_lost) check(kCauseTimeout);
    throw;
  }
  check_promise(launch, config, job->runtime->topology());
  const Store of_job = job_store.store.with_alarm([check] { check(kAnswerTimeout); });
  const auto services = make_job_services(config, of_job, job_store.key, address_of(config, job_store.store));
  services->has_servers = launch.launcher == Launcher::hvdrun || epoch == 1;
  services->ends_with_rank_0 = launch.launcher != Launcher::hvdrun;
  return {.runtime = runtime_of(job), .member = nullptr, .services = services};
}

// Each epoch has a file of its own: "run.json", then "run.epoch2.json" and so on.
std::string timeline_of_epoch(const std::string& file, int epoch) {
  if (epoch == 1 || file.empty() || file == "DYNAMIC") return file;
  const std::size_t folder_end = file.rfind('/') + 1;  // 0: none
  const std::size_t dot = file.rfind('.');
  const std::size_t end = dot == std::string::npos || dot < folder_end ? file.size() : dot;
  return file.substr(0, end) + ".epoch" + std::to_string(epoch) + file.substr(end);
}

// In an elastic job: waits for a place in its next epoch, and forms that with the other ranks.
JoinedJob start_in_epoch(Config config) {
  JobStore store = store_of_hvdrun(config, deadline_after(config.timeouts.start));
  JoinedJob joined;
  joined.member = std::make_shared<EpochMember>(store.store, config.job.process);
  const EpochPlace& place = joined.member->place();
  config.job.rank = place.rank;
  config.job.size = place.size;
  config.diagnosis.timeline = timeline_of_epoch(config.diagnosis.timeline, place.epoch);
  const auto job = std::make_shared<Job>();
  try {
    job->runtime = make_runtime(config, joined.member->store_of_epoch(), store.key, address_of(config, store.store));
  } catch (const Error& error) {
    // Another rank has left while this one was joining. To the caller shut_down would mean that the job has no place
    // for this process.
    if (error.code() == StatusCode::shut_down) throw Aborted(error.what());
    if (const int culprit = error.status().culprit(); culprit >= 0) joined.member->report_unreachable(culprit);
    throw;
  }
  joined.runtime = runtime_of(job);
  joined.services = make_job_services(config, store.store, store.key, address_of(config, store.store));
  return joined;
}

// Returns the launch that the environment describes. The environment may be invalid if the caller provides a
// rendezvous.
Launch launch_by_environment(const Environment& environment, bool is_needed) {
  try {
    return read_launch(environment);
  } catch (const InvalidArgument&) {
    if (is_needed) throw;
    return {};
  }
}

// With servers even a single rank needs a store.
bool works_alone(const Launch& launch) { return launch.size == 1 && launch.servers == 0 && !launch.process; }

void refuse_server(const Launch& launch) {
  if (launch.server < 0) return;
  throw InvalidArgument("this process is server " + std::to_string(launch.server) + " of " +
                        std::to_string(launch.servers) + ", and not one of the job's " + std::to_string(launch.size) +
                        " ranks: it calls hvd_ps_serve(), which serves until they have ended, instead of hvd_init()");
}

void refuse_child_of_rank(const Launch& launch, const Environment& environment) {
  if (works_alone(launch)) return;
  const auto rank = rank_that_started_this(launch.launcher, environment);
  if (!rank) return;
  throw InvalidArgument("this process (pid " + std::to_string(getpid()) + ") is a child of rank " +
                        std::to_string(launch.rank) + " (pid " + std::to_string(*rank) +
                        "), and cannot join as the same rank: " + kAdviceForChildren);
}

}  // namespace

std::optional<ExpectedRank> find_expected_rank(const Environment& environment) {
  Config config = read_config(environment).config;
  const Launch launch = launch_by_environment(environment, true);
  if (!launch.process) return std::nullopt;
  refuse_child_of_rank(launch, environment);
  config.job.process = *launch.process;
  const Deadline deadline = deadline_after(config.timeouts.start);
  return ask_expected_rank(store_of_hvdrun(config, deadline).store, *launch.process, deadline);
}

JobServices job_services_of_server(const Environment& environment) {
  Config config = read_config(environment).config;
  const Launch launch = launch_by_environment(environment, true);
  if (launch.server < 0) {
    throw InvalidArgument("this process is none of its job's parameter servers: hvdrun --servers starts them");
  }
  config.job.server = launch.server;
  config.job.servers = launch.servers;
  config.job.size = launch.size;
  const Deadline deadline = deadline_after(config.timeouts.start);
  const Log log("server " + std::to_string(launch.server), config.diagnosis.log_level);
  Launch client = launch;
  client.rank = launch.size + launch.server;  // its number as a client of the store
  config.job.rank = client.rank;
  const JobStore job = store_of(client, config, 1, log, deadline);
  return *make_job_services(config, job.store, job.key, address_of(config, job.store));
}

JoinedJob join_job(const Environment& environment, const std::optional<Rendezvous>& rendezvous, int epoch) {
  auto [config, warnings] = read_config(environment);
  const Launch by_environment = launch_by_environment(environment, !rendezvous);
  refuse_child_of_rank(by_environment, environment);
  const Launch launch =
      rendezvous ? Launch{.rank = rendezvous->rank, .size = rendezvous->size, .local_size = rendezvous->local_size}
                 : by_environment;
  refuse_server(launch);
  config.job.rank = launch.rank;
  config.job.size = launch.size;
  config.job.servers = launch.servers;
  config.job.process = launch.process.value_or(-1);
  JoinedJob joined;
  if (launch.process) {
    joined = start_in_epoch(config);
  } else {
    joined = works_alone(launch) ? start_alone(config) : start_together(config, launch, rendezvous, epoch);
  }
  joined.is_launched = by_environment.launcher != Launcher::none;
  if (joined.runtime->topology().rank == 0) {
    for (const std::string& warning : warnings) joined.runtime->log().warning(warning);
  }
  return joined;
}

}  // namespace hvd
