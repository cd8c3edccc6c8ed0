#include "tests/support/run_ranks.h"

#include <numeric>
#include <stdexcept>
#include <thread>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/bootstrap/store.h"
#include "ops/registry.h"
#include "tests/support/link_costs.h"

namespace hvd::testing {

namespace {

constexpr Duration kTimeout = std::chrono::minutes(10);

Config rank_config(const RunOptions& options, int rank) {
  Environment environment = options.environment;
  environment["HVD_RANK"] = std::to_string(rank);
  environment["HVD_SIZE"] = std::to_string(options.layout.size());
  environment["HVD_SHARED_MEMORY"] = options.layout.shared_memory ? "1" : "0";
  environment.emplace("HVD_LOG_LEVEL", "off");
  if (options.change_for) options.change_for(rank, environment);
  return read_config(environment).config;
}

int host_of(const Layout& layout, int rank) {
  int host = 0;
  for (int left = rank; left >= layout.ranks_by_host[static_cast<std::size_t>(host)]; ++host) {
    left -= layout.ranks_by_host[static_cast<std::size_t>(host)];
  }
  return host;
}

DataPlaneFactory factory_of(const RunOptions& options) {
  DataPlaneFactory make = options.measured_links ? make_data_plane : data_plane_with(kTenGigabit);
  if (!options.change_data_plane) return make;
  return [make, change = options.change_data_plane](const BackendContext& context) {
    DataPlane made = make(context);
    change(made);
    return made;
  };
}

Runtime::Dependencies dependencies_of(const RunOptions& options, int rank, const Store& store, const JobKey& key) {
  const std::string host = "host-" + std::to_string(host_of(options.layout, rank));
  return {.store = store,
          .job_key = key,
          .identity = {.host_key = host, .hostname = host, .pid = 1000 + rank, .cpus = allowed_cpus()},
          .local_host_address = "127.0.0.1",
          .make_data_plane = factory_of(options),
          .make_channel = make_channel};
}

void run_as_rank(Runtime& runtime, const std::function<void(Runtime&)>& body) {
  body(runtime);
  // Leaving is collective news: nobody leaves while others still work.
  perform(runtime, {.collective = Collective::barrier, .name = "end of test"});
}

// The test program is one of the ranks. Its own environment says which backend is tested.
void run_in_job(const Launch& launch, RunOptions options, const std::function<void(Runtime&)>& body) {
  if (options.layout.size() != launch.size || options.layout.gpus) return;  // the fakes know ranks of one process
  const Environment own = process_environment();
  for (const char* name : {"HVD_CPU_BACKEND", "HVD_LOG_LEVEL"}) {
    if (own.contains(name)) options.environment[name] = own.at(name);
  }
  const Config config = rank_config(options, launch.rank);
  const Log log("test", LogLevel::warning);
  const JobStore place = rendezvous_by_broadcast(launcher_rendezvous(launch, config), log, deadline_after(kTimeout));
  Runtime runtime(config, dependencies_of(options, launch.rank, place.store, place.key));
  run_as_rank(runtime, body);
}

}  // namespace

int Layout::size() const { return std::accumulate(ranks_by_host.begin(), ranks_by_host.end(), 0); }

std::string Layout::name() const {
  return to_string(Shape(ranks_by_host.begin(), ranks_by_host.end())) +
         (shared_memory ? "" : " without shared memory") + (gpus ? " on GPUs" : "");
}

void run_ranks(const RunOptions& options, const std::function<void(Runtime&)>& body) {
  const Launch launch = read_launch(process_environment());
  if (launch.size > 1) return run_in_job(launch, options, body);
  Store store;
  const JobKey key = JobKey::random();
  std::vector<std::string> failures(static_cast<std::size_t>(options.layout.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.layout.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Runtime runtime(rank_config(options, rank), dependencies_of(options, rank, store, key));
        run_as_rank(runtime, body);
      } catch (const std::exception& error) {
        failures[static_cast<std::size_t>(rank)] = "rank " + std::to_string(rank) + ": " + error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& failure : failures) all += failure.empty() ? "" : failure + "\n";
  if (!all.empty()) throw std::runtime_error(all);
}

void perform(Runtime& runtime, const Call& call) {
  const Status status = outcome(runtime, call);
  if (!status.ok()) throw Error(status);
}

Status outcome(Runtime& runtime, const Call& call) {
  try {
    CallerReference handle = runtime.submit(call);
    if (!handle->wait(deadline_after(kTimeout))) return Status(StatusCode::timeout, "the test's timeout is over");
    return handle->completion.outcome();
  } catch (const Error& error) {
    return error.status();
  }
}

Status outcome_of_run(Runtime& runtime, const Call& call, Duration timeout) {
  try {
    const CallerReference operation = runtime.run(call, timeout);
    if (operation == nullptr) return {};
    if (!operation->poll()) return Status(StatusCode::timeout, "the test's timeout is over");
    return operation->completion.outcome();
  } catch (const Error& error) {
    return error.status();
  }
}

}  // namespace hvd::testing
