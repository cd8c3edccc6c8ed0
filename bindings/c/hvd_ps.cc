// The C interface of parameter servers (hvd_ps.h).
#include "hvd_ps.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/c/arguments.h"
#include "bindings/c/instance.h"
#include "core/base/process.h"
#include "core/bootstrap/launch_environment.h"
#include "core/flight/flight_recorder.h"
#include "parameters/client.h"
#include "parameters/server.h"
#include "parameters/update_functions.h"

namespace {

using namespace hvd;

static_assert(HVD_PS_CUSTOM == static_cast<int>(UpdateRule::custom) && HVD_PS_CUSTOM + 1 == kUpdateRules);
static_assert(HVD_PS_NORMAL == static_cast<int>(InitializerSpec::Kind::normal));
static_assert(HVD_PS_SYNCHRONOUS == static_cast<int>(Consistency::synchronous));

constexpr const char* kAdviceForLaterEpochs =
    "the servers of this job, which TF_CONFIG describes, are found between the first hvd_init() and the hvd_shutdown() "
    "that follows it: connect then, and keep the connection, which hvd_shutdown() does not close";
constexpr Duration kServerPollInterval = std::chrono::milliseconds(10);

Duration stall_warning_of(const Config& config) {
  return config.timeouts.stall_check ? config.timeouts.stall_warning : Duration{};
}

ServerOptions server_options(const JobServices& services, int server, int servers, std::shared_ptr<Metrics> metrics) {
  const Config::Servers& config = services.config.servers;
  return {.server = server,
          .servers = servers,
          .copies = services.config.job.servers > 0 ? config.copies : 1,
          .parts = services.config.job.servers > 0 ? config.parts : 1,
          .memory = static_cast<std::size_t>(config.memory_bytes),
          .snapshot = config.snapshot,
          .interval = config.snapshot_interval,
          .start_timeout = services.config.timeouts.start,
          .lease = services.config.timeouts.lease,
          .stall_warning = stall_warning_of(services.config),
          .shares_memory = services.config.data_plane.shared_memory,
          .host_key = services.host_key,
          .local_host = services.local_host,
          .metrics = std::move(metrics)};
}

// The server of a worker's own shard, in a job whose workers serve.
class OwnServer {
 public:
  OwnServer(const JobServices& services, int rank, int size, std::shared_ptr<Metrics> metrics)
      : log_("server " + std::to_string(rank), services.config.diagnosis.log_level),
        server_(server_options(services, rank, size, std::move(metrics)), services.store, services.key, log_) {
    thread_ = start_thread("hvd-parameters", [this] {
      try {
        server_.run();
      } catch (const std::exception& error) {
        log_.error(error.what());
      }
      ended_ = true;
    });
  }
  ~OwnServer() {
    server_.stop();
    thread_.join();
  }
  OwnServer(const OwnServer&) = delete;
  OwnServer& operator=(const OwnServer&) = delete;

  // Waits until all workers have left; returns false at the deadline. Throws what the alarm throws.
  bool await_end(const Alarm& alarm, Deadline deadline) const {
    AlarmClock clock(alarm);
    while (!ended_) {
      clock.poll();
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kServerPollInterval);
    }
    return true;
  }

 private:
  const Log log_;
  ParameterServer server_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

template <typename Enumeration>
Enumeration within(std::int32_t number, int last, const char* what) {
  if (number < 0 || number > last) throw_unknown(what, number);
  return static_cast<Enumeration>(number);
}

// Padding at the end would hide from struct_size whether a caller knows a field that is added there.
static_assert(offsetof(hvd_ps_optimizer, compensation) + sizeof(float) == sizeof(hvd_ps_optimizer));
static_assert(offsetof(hvd_ps_table, cache) + sizeof(std::int32_t) == sizeof(hvd_ps_table));

OptimizerSpec to_spec(const hvd_ps_optimizer& o) {
  if (o.state < 0) throw InvalidArgument("state must not be negative");
  return {.rule = within<UpdateRule>(o.rule, HVD_PS_CUSTOM, "rule"),
          .row_wise = o.row_wise != 0,
          .nesterov = o.nesterov != 0,
          .learning_rate = o.learning_rate,
          .momentum = o.momentum,
          .weight_decay = o.weight_decay,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .epsilon = o.epsilon,
          .accumulator = o.accumulator,
          .beta = o.beta,
          .l1 = o.l1,
          .l2 = o.l2,
          .function = o.update == nullptr ? "" : o.update,
          .state = static_cast<std::uint32_t>(o.state)};
}

TableSpec to_spec(const hvd_ps_table& t) {
  if (t.rows < 0 || t.width < 0 || t.bound < 0 || t.max_age < 0 || t.cache < 0) {
    throw InvalidArgument("rows, width, bound, max_age and cache must not be negative");
  }
  hvd_ps_optimizer optimizer = HVD_PS_OPTIMIZER_INIT;
  if (t.optimizer != nullptr) optimizer = copy_versioned(*t.optimizer, optimizer, "hvd_ps_optimizer");
  return {.name = &required(t.name, "hvd_ps_table.name"),
          .dense = t.dense != 0,
          .rows = static_cast<std::uint64_t>(t.rows),
          .max_age = static_cast<std::uint32_t>(t.max_age),
          .width = static_cast<std::uint32_t>(t.width),
          .optimizer = to_spec(optimizer),
          .initializer = {.kind = within<InitializerSpec::Kind>(t.initializer, HVD_PS_NORMAL, "initializer"),
                          .a = t.a,
                          .b = t.b,
                          .seed = t.seed},
          .consistency = within<Consistency>(t.consistency, HVD_PS_SYNCHRONOUS, "consistency"),
          .bound = static_cast<std::uint32_t>(t.bound),
          .filled = t.filled != 0,
          .average = t.average != 0,
          .compensation = optimizer.compensation};
}

// Servers are found through the job's store. Throws PeerLost if that is gone.
void check_store(const JobServices& services) {
  try {
    services.store.add(ps_keys::starts(0), 0);
  } catch (const PeerLost&) {
    if (!services.ends_with_rank_0) throw;
    throw PeerLost(
        "rank 0 has left this job, and with it the store by which parameter servers are found: let rank 0 leave after "
        "all ranks have connected, for example behind a barrier");
  }
}

// At most one connection to the servers per process at a time.
class OnlyConnection {
 public:
  explicit OnlyConnection(const JobServices& services) : is_connected_(services.is_connected) {
    if (is_connected_->test_and_set()) {
      throw InvalidArgument(
          "this process is connected with the parameter servers already: use that connection, or close it first");
    }
    Instance::get().count_connection(1);
  }
  ~OnlyConnection() {
    Instance::get().count_connection(-1);
    is_connected_->clear();
  }
  OnlyConnection(const OnlyConnection&) = delete;
  OnlyConnection& operator=(const OnlyConnection&) = delete;

 private:
  const std::shared_ptr<std::atomic_flag> is_connected_;
};

}  // namespace

struct hvd_ps {
  hvd_ps(std::shared_ptr<const JobServices> job_services, const Runtime& runtime)
      : services(std::move(job_services)),
        only(*services),
        log(std::make_shared<const Log>("rank " + std::to_string(runtime.topology().rank),
                                        services->config.diagnosis.log_level)),
        metrics(runtime.shared_metrics()) {
    check_store(*services);
    const Topology& topology = runtime.topology();
    if (services->config.job.servers == 0)
      own = std::make_unique<OwnServer>(*services, topology.rank, topology.size, metrics);
    const int servers = own ? topology.size : services->config.job.servers;
    // By its process's number it is the same worker in all epochs.
    const bool comes_and_goes = !own && services->config.job.process >= 0;
    if (!own && !services->has_servers) throw InvalidArgument(kAdviceForLaterEpochs);
    client =
        connect({.worker = comes_and_goes ? services->config.job.process : topology.rank,
                 .workers = comes_and_goes ? 0 : topology.size,
                 .servers = servers,
                 .copies = own ? 1 : services->config.servers.copies,
                 .parts = own ? 1 : services->config.servers.parts,
                 .start_timeout = services->config.timeouts.start,
                 .lease = services->config.timeouts.lease,
                 .stall_warning = stall_warning_of(services->config),
                 .shares_memory = services->config.data_plane.shared_memory,
                 .host_key = services->host_key,
                 .wait = wait_policy_for({.ranks = topology.machine.ranks + servers, .cpus = topology.machine.cpus}),
                 .metrics = metrics});
    metrics->worker.servers.set(static_cast<std::uint64_t>(servers));
  }

  // False at the deadline.
  bool leave(Deadline deadline) {
    if (!leaving) {
      if (!client->flush(deadline)) return false;
      leaving = client->leave();
      leave_limit = deadline_after(services->config.timeouts.start);
    }
    if (!client->wait(leaving, std::min(deadline, leave_limit))) {
      if (Clock::now() < leave_limit) return false;
      throw PeerLost("a parameter server has not confirmed within HVD_START_TIMEOUT that this worker leaves");
    }
    return !own || own->await_end(services->store.alarm(), deadline);
  }

  const std::shared_ptr<const JobServices> services;
  const OnlyConnection only;
  const std::shared_ptr<const Log> log;
  const std::shared_ptr<Metrics> metrics;
  std::unique_ptr<OwnServer> own;
  std::shared_ptr<ParameterClient> client;
  ParameterClient::CallReference leaving;
  Deadline leave_limit{};

 private:
  // A thread in an hvd_ps_work_ function may keep the client alive longer than this object: it keeps the log.
  std::shared_ptr<ParameterClient> connect(const WorkerOptions& options) const {
    auto made = std::make_unique<ParameterClient>(options, services->store, services->key, *log);
    return {made.release(), [kept = log](ParameterClient* last) { delete last; }};
  }
};

struct hvd_ps_work {
  std::weak_ptr<ParameterClient> client;  // expired: the connections are closed
  ParameterClient::CallReference call;
};

namespace {

// A forked child has copies of its parent's connections: what it sent would be mixed with what its parent sends.
void refuse_in_child() {
  if (Instance::get().forked()) {
    throw Error(StatusCode::not_initialized, "a forked child cannot use its parent's connections with servers");
  }
}

// For functions that use the connections.
hvd_ps& connected(hvd_ps* ps) {
  refuse_in_child();
  return required(ps, "ps");
}

ParameterClient& client_of(hvd_ps* ps) { return *connected(ps).client; }

std::shared_ptr<ParameterClient> client_of(hvd_ps_work* work) {
  refuse_in_child();
  auto client = required(work, "work").client.lock();
  if (!client) throw Error(StatusCode::shut_down, "the connections with the parameter servers are closed");
  return client;
}

using Start = ParameterClient::CallReference (ParameterClient::*)(int table, const RowsCall& rows);

// Counts a call that has started.
void count_call(Metrics& metrics, Start start, std::size_t rows) {
  if (start == &ParameterClient::fill) return;
  if (start != &ParameterClient::pull) metrics.worker.pushes.add();
  if (start != &ParameterClient::push) metrics.worker.pulls.add();
  metrics.worker.rows.add(rows);
}

// Without `work` the caller waits, which a callback must not do.
void refuse_wait_in_callback(hvd_ps_work** work, const char* function) {
  if (work == nullptr) refuse_in_callback(function);
}

// Without `work` this waits for the call.
void wait_or_hand_out(const std::shared_ptr<ParameterClient>& client, ParameterClient::CallReference started,
                      hvd_ps_work** work) {
  if (work != nullptr) {
    *work = new hvd_ps_work{client, std::move(started)};
  } else {
    client->wait(started, Deadline::max());
  }
}

hvd_status start_call(const char* function, hvd_ps* ps, std::int32_t table, const std::uint64_t* keys,
                      std::size_t count, const float* gradients, float* rows, hvd_ps_work** work, Start start) {
  return guarded([&] {
    if (work != nullptr) *work = nullptr;
    refuse_wait_in_callback(work, function);
    const hvd_ps& own = connected(ps);
    ParameterClient& client = *own.client;
    const bool is_whole = keys == nullptr && client.spec(table).dense;
    if (count > 0) {
      if (!is_whole) required(keys, "keys");
      if (start != &ParameterClient::pull)
        required(gradients, start == &ParameterClient::fill ? "values" : "gradients");
      if (start == &ParameterClient::pull || start == &ParameterClient::push_pull) required(rows, "rows");
    }
    const RowsCall call{.keys = {keys, is_whole ? 0 : count},
                        .is_whole = is_whole,
                        .gradients = gradients,
                        .rows = rows,
                        .values = count};
    auto started = (client.*start)(table, call);
    count_call(*own.metrics, start, is_whole ? client.spec(table).rows : count);
    wait_or_hand_out(own.client, std::move(started), work);
  });
}

// A call to all servers.
template <typename StartCall>
hvd_status ask_servers(const char* function, hvd_ps* ps, hvd_ps_work** work, const StartCall& start) {
  return guarded([&] {
    if (work != nullptr) *work = nullptr;
    refuse_wait_in_callback(work, function);
    const auto& client = connected(ps).client;
    wait_or_hand_out(client, start(*client), work);
  });
}

// The process's server, which SIGTERM stops.
std::atomic<ParameterServer*> serving{nullptr};

void stop_serving(int) {
  if (ParameterServer* const server = serving.load()) server->stop();
}

class StopBySignal {
 public:
  explicit StopBySignal(ParameterServer& server) {
    serving = &server;
    struct sigaction action {};
    action.sa_handler = stop_serving;
    sigaction(SIGTERM, &action, &before_);
  }
  ~StopBySignal() {
    sigaction(SIGTERM, &before_, nullptr);
    serving = nullptr;
  }
  StopBySignal(const StopBySignal&) = delete;
  StopBySignal& operator=(const StopBySignal&) = delete;

 private:
  struct sigaction before_ {};
};

// In its scope hvd_get_metrics() returns the metrics of the server.
class ServesHere {
 public:
  explicit ServesHere(std::shared_ptr<const Metrics> metrics) { Instance::get().serves(std::move(metrics)); }
  ~ServesHere() { Instance::get().serves(nullptr); }
  ServesHere(const ServesHere&) = delete;
  ServesHere& operator=(const ServesHere&) = delete;
};

}  // namespace

extern "C" {

hvd_status hvd_ps_serve(void) {
  return guarded([] {
    refuse_in_callback("hvd_ps_serve");
    const JobServices services = job_services_of_server(process_environment());
    const int number = services.config.job.server;
    const Log log("server " + std::to_string(number), services.config.diagnosis.log_level);
    FlightRecorder flight(services.config.diagnosis.flight_recorder, number, stall_warning_of(services.config));
    const ServesHere serves(flight.metrics());
    ParameterServer server(server_options(services, number, services.config.job.servers, flight.metrics()),
                           services.store, services.key, log);
    flight.initialized();
    const StopBySignal stop(server);
    server.run();
  });
}

hvd_status hvd_ps_register_update(const char* name, hvd_ps_update update, void* context) {
  return guarded([&] {
    if (update == nullptr) throw InvalidArgument("update is NULL");
    register_update(&required(name, "name"), [update, context](const RowsUpdate& of) {
      return update(of.rows, of.state, of.gradients, of.count, of.columns, of.state_columns, of.learning_rate,
                    context) == 0;
    });
  });
}

hvd_status hvd_ps_connect(hvd_ps** ps) {
  return guarded([&] {
    refuse_in_callback("hvd_ps_connect");
    hvd_ps*& out = required(ps, "ps");
    out = nullptr;
    const auto runtime = Instance::get().runtime();
    out = new hvd_ps(Instance::get().job_services(), *runtime);
  });
}

hvd_status hvd_ps_leave(hvd_ps* ps, int64_t timeout_us) {
  return guarded([&] {
    if (timeout_us != 0) refuse_in_callback("hvd_ps_leave");
    if (!connected(ps).leave(deadline_in(timeout_us))) throw Timeout("other workers have not left yet");
  });
}

hvd_status hvd_ps_close(hvd_ps* ps) {
  return guarded([&] {
    refuse_in_callback("hvd_ps_close");
    const std::unique_ptr<hvd_ps> own(&connected(ps));
    // Leaves even after a failure: the other workers may need its shard, and must not treat it as lost.
    Status failure;
    try {
      own->client->flush(Deadline::max());
    } catch (const Error& error) {
      failure = error.status();
    }
    own->leave(Deadline::max());
    if (!failure.ok()) throw Error(failure);
  });
}

// A child has none of the threads that this would join.
void hvd_ps_abandon(hvd_ps* ps) {
  if (!Instance::get().forked()) delete ps;
}

hvd_status hvd_ps_open(hvd_ps* ps, const hvd_ps_table* table, int32_t* number) {
  return guarded([&] {
    refuse_in_callback("hvd_ps_open");
    const hvd_ps_table given = copy_versioned(required(table, "table"), hvd_ps_table HVD_PS_TABLE_INIT, "hvd_ps_table");
    std::int32_t& out = required(number, "number");  // checked before the table is opened
    out = client_of(ps).open(to_spec(given), static_cast<std::uint32_t>(given.cache));
  });
}

hvd_status hvd_ps_servers(hvd_ps* ps, int32_t* servers, int32_t* are_others) {
  return guarded([&] {
    const hvd_ps& own = connected(ps);
    required(servers, "servers") = own.client->servers();
    required(are_others, "are_others") = own.own ? 0 : 1;
  });
}

hvd_status hvd_ps_cache_counts(hvd_ps* ps, int32_t table, uint64_t* found, uint64_t* missing) {
  return guarded([&] {
    const auto counts = client_of(ps).cache_counts(table);
    required(found, "found") = counts.found;
    required(missing, "missing") = counts.missing;
  });
}

hvd_status hvd_ps_pull(hvd_ps* ps, int32_t table, const uint64_t* keys, size_t count, float* rows, hvd_ps_work** work) {
  return start_call("hvd_ps_pull", ps, table, keys, count, nullptr, rows, work, &ParameterClient::pull);
}

hvd_status hvd_ps_push(hvd_ps* ps, int32_t table, const uint64_t* keys, size_t count, const float* gradients,
                       hvd_ps_work** work) {
  return start_call("hvd_ps_push", ps, table, keys, count, gradients, nullptr, work, &ParameterClient::push);
}

hvd_status hvd_ps_push_pull(hvd_ps* ps, int32_t table, const uint64_t* keys, size_t count, const float* gradients,
                            float* rows, hvd_ps_work** work) {
  return start_call("hvd_ps_push_pull", ps, table, keys, count, gradients, rows, work, &ParameterClient::push_pull);
}

hvd_status hvd_ps_fill(hvd_ps* ps, int32_t table, const float* values, size_t count, hvd_ps_work** work) {
  return start_call("hvd_ps_fill", ps, table, nullptr, count, values, nullptr, work, &ParameterClient::fill);
}

hvd_status hvd_ps_work_wait(hvd_ps_work* work, int64_t timeout_us) {
  return guarded([&] {
    const auto client = client_of(work);
    if (timeout_us != 0 && !client->is_done(work->call)) refuse_in_callback("hvd_ps_work_wait");
    if (!client->wait(work->call, deadline_in(timeout_us))) throw Timeout("the work is not done yet");
  });
}

int hvd_ps_work_poll(hvd_ps_work* work) {
  int is_done = 1;
  const auto status = guarded([&] { is_done = client_of(work)->is_done(work->call) ? 1 : 0; });
  return status == HVD_OK ? is_done : 1;  // hvd_ps_work_wait() returns the error
}

uint64_t hvd_ps_work_version(hvd_ps_work* work) { return work == nullptr ? 0 : ParameterClient::version(work->call); }

void hvd_ps_work_free(hvd_ps_work* work) {
  if (work == nullptr || Instance::get().forked()) return;
  const std::unique_ptr<hvd_ps_work> own(work);
  if (const auto client = own->client.lock()) client->drop(own->call);
}

hvd_status hvd_ps_flush(hvd_ps* ps, int64_t timeout_us) {
  return guarded([&] {
    if (timeout_us != 0) refuse_in_callback("hvd_ps_flush");
    if (!client_of(ps).flush(deadline_in(timeout_us))) throw Timeout("calls to parameter servers are not done yet");
  });
}

hvd_status hvd_ps_clock(hvd_ps* ps) {
  return guarded([&] { client_of(ps).advance_clock(); });
}

hvd_status hvd_ps_get_clock(hvd_ps* ps, uint32_t* own, uint32_t* lowest) {
  return guarded([&] {
    required(own, "own") = client_of(ps).clock();
    required(lowest, "lowest") = client_of(ps).min_clock();
  });
}

hvd_status hvd_ps_set_learning_rate(hvd_ps* ps, int32_t table, float rate, hvd_ps_work** work) {
  return ask_servers("hvd_ps_set_learning_rate", ps, work,
                     [&](ParameterClient& client) { return client.set_learning_rate(table, rate); });
}

hvd_status hvd_ps_snapshot(hvd_ps* ps, const char* folder, hvd_ps_work** work) {
  return ask_servers("hvd_ps_snapshot", ps, work,
                     [&](ParameterClient& client) { return client.snapshot(&required(folder, "folder")); });
}

hvd_status hvd_ps_restore(hvd_ps* ps, const char* folder, hvd_ps_work** work) {
  return ask_servers("hvd_ps_restore", ps, work,
                     [&](ParameterClient& client) { return client.restore(&required(folder, "folder")); });
}

hvd_status hvd_ps_stats(hvd_ps* ps, hvd_ps_work** work) {
  return ask_servers("hvd_ps_stats", ps, work, [&](ParameterClient& client) {
    required(work, "work");
    return client.stats();
  });
}

const char* hvd_ps_work_stats(hvd_ps_work* work) {
  thread_local std::string copy;
  copy.clear();
  if (work == nullptr) return "";
  const std::vector<std::string>& texts = ParameterClient::texts(work->call);
  for (std::size_t server = 0; server < texts.size(); ++server) {
    const std::string& lines = texts[server];
    for (std::size_t begin = 0, end = 0; (end = lines.find('\n', begin)) != std::string::npos; begin = end + 1) {
      copy += std::to_string(server) + " " + lines.substr(begin, end + 1 - begin);
    }
  }
  return copy.c_str();
}

}  // extern "C"
