#include "core/config.h"

#include <unistd.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"

namespace hvd {

namespace {

struct Setting {
  const char* name;
  const char* alias;  // the HOROVOD_* variable with the same meaning, or ""
  const char* default_text;
  const char* documentation;
  void (*parse)(Config& config, std::string_view text);
};

template <typename T>
T parse_within(std::string_view text, T lowest, T highest, const char* what) {
  const auto value = parse_number<T>(text);
  if (!value || !(*value >= lowest && *value <= highest)) throw InvalidArgument(what);  // nan is neither
  return *value;
}

int parse_count(std::string_view text) {
  return parse_within<int>(text, 0, 1'000'000, "a whole number from 0 to 1000000");
}

std::int64_t parse_bytes(std::string_view text) {
  return parse_within<std::int64_t>(text, 0, std::int64_t{1} << 40, "a number of bytes, at most 2^40");
}

constexpr std::chrono::seconds kMaxWait{10'000'000};
using Seconds = std::chrono::duration<double>;
using Milliseconds = std::chrono::duration<double, std::milli>;

template <typename Unit>
Duration parse_duration(std::string_view text, double shortest, double longest, const char* what) {
  return std::chrono::duration_cast<Duration>(Unit(parse_within<double>(text, shortest, longest, what)));
}

Duration parse_seconds(std::string_view text) {
  return parse_duration<Seconds>(text, 0, kMaxWait.count(), "a number of seconds, at most 10000000");
}

bool parse_flag(std::string_view text) {
  if (text == "1" || text == "true" || text == "on" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "off" || text == "no" || text.empty()) return false;
  throw InvalidArgument("0 or 1");
}

std::int64_t parse_chunk_bytes(std::string_view text) {
  const auto value = parse_within<std::int64_t>(text, 4096, 1 << 24, "a multiple of 4096 bytes from 4096 to 16777216");
  if (value % 4096 != 0) throw InvalidArgument("a multiple of 4096 bytes from 4096 to 16777216");
  return value;
}

template <typename T>
struct Choice {
  const char* name;
  T value;
};

constexpr Choice<JoinDivisor> kJoinDivisors[] = {{"all", JoinDivisor::all},
                                                 {"contributing", JoinDivisor::contributing}};
constexpr Choice<JoinScope> kJoinScopes[] = {{"all", JoinScope::all}, {"allreduce", JoinScope::allreduce}};
constexpr Choice<CpuBackend> kCpuBackends[] = {
    {"auto", CpuBackend::automatic}, {"host", CpuBackend::host},
    {"mpi", CpuBackend::mpi},        {"mpi-messages", CpuBackend::mpi_messages},
    {"gloo", CpuBackend::host},      {"ccl", CpuBackend::host}};  // Horovod's names

template <typename T>
T parse_choice(std::string_view text, std::span<const Choice<T>> choices, const char* what) {
  for (const Choice<T>& choice : choices) {
    if (text == choice.name) return choice.value;
  }
  throw InvalidArgument(what);
}

template <typename T>
std::string name_of(T value, std::span<const Choice<T>> choices) {
  return std::ranges::find(choices, value, &Choice<T>::value)->name;
}

void nothing(Config&, std::string_view) {}

// Order is the order of docs/environment.md.
const Setting kSettings[] = {
    {"HVD_RANK", "HOROVOD_RANK", "0", "This process's number in the job. Set by hvdrun.",
     [](Config& c, std::string_view t) { c.job.rank = parse_count(t); }},
    {"HVD_SIZE", "HOROVOD_SIZE", "1", "Number of processes in the job. Set by hvdrun.",
     [](Config& c, std::string_view t) {
       c.job.size = parse_within<int>(t, 1, 1'000'000, "a whole number from 1 to 1000000");
     }},
    {"HVD_LOCAL_RANK", "HOROVOD_LOCAL_RANK", "0",
     "Number of this process on its host. Set by hvdrun for scripts that read it; the runtime finds it out itself.",
     nothing},
    {"HVD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE", "1", "Number of processes on this host. Set by hvdrun, as above.",
     nothing},
    {"HVD_CROSS_RANK", "HOROVOD_CROSS_RANK", "0",
     "Number of this host among the hosts that have this local rank. Set by hvdrun, as above.", nothing},
    {"HVD_CROSS_SIZE", "HOROVOD_CROSS_SIZE", "1", "Number of hosts that have this local rank. Set by hvdrun, as above.",
     nothing},
    {"HVD_STORE", "", "",
     "host:port of the job's store, where ranks find each other. Set by hvdrun. Empty: rank 0 of 1.",
     [](Config& c, std::string_view t) { c.job.store = t; }},
    {"HVD_RENDEZVOUS", "", "",
     "host:port where rank 0 is to host the job's store, the same in all processes. With HVD_RANK, HVD_SIZE and "
     "HVD_JOB_KEY it starts a job without a launcher, in the pods of a Kubernetes Job for instance. A name that does "
     "not "
     "resolve yet is tried until HVD_START_TIMEOUT.",
     nothing},
    {"HVD_KUBERNETES_ACCOUNT", "", "/var/run/secrets/kubernetes.io/serviceaccount",
     "Folder with the token, the namespace and the CA certificate with which hvdrun --cluster kubernetes asks the API "
     "server, whose address is in KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.",
     nothing},
    {"HVD_JOB_KEY", "", "",
     "The job's secret, 64 hexadecimal digits: every connection proves that it knows it. Set by hvdrun, fresh for each "
     "job; to be set for srun without MPI, with TF_CONFIG, HVD_RENDEZVOUS, and for hvdrun's listening agents.",
     [](Config& c, std::string_view t) { c.job.key = t; }},
    {"HVD_HOST_ID", "", "",
     "Ranks with the same value share memory. Empty: found out from the kernel's boot id and the namespaces.",
     [](Config& c, std::string_view t) { c.job.host_id = t; }},
    {"HVD_HOSTNAME", "HOROVOD_HOSTNAME", "", "The host's name in messages. Empty: as the system says.",
     [](Config& c, std::string_view t) { c.job.hostname = t; }},
    {"HVD_ADDRESS", "", "",
     "The numeric address by which ranks on other hosts reach this one. Set by hvdrun. Empty: the one from which the "
     "job's store is reached.",
     [](Config& c, std::string_view t) { c.job.address = t; }},
    {"HVD_START_TIMEOUT", "HOROVOD_START_TIMEOUT", "30", "Seconds that init waits for the other ranks.",
     [](Config& c, std::string_view t) { c.timeouts.start = parse_seconds(t); }},
    {"HVD_LEASE", "", "5",
     "Seconds after which a host that has gone silent, because it lost its network or its power, counts as dead: 1 to "
     "3600. A rank that is stopped does not, for its host still answers.",
     [](Config& c, std::string_view t) {
       c.timeouts.lease = parse_duration<Seconds>(t, 1, 3600, "a number of seconds from 1 to 3600");
     }},
    {"HVD_FLIGHT_RECORDER", "", "-1",
     "Descriptor of the memory in which this process records its last operations for hvdrun, which reads them when the "
     "job stalls or fails. Set by hvdrun. -1: the process has such memory of its own.",
     [](Config& c, std::string_view t) {
       c.diagnosis.flight_recorder = parse_within<int>(t, -1, 1'000'000'000, "a descriptor, or -1");
     }},
    {"HVD_FLIGHT_STACKS", "", "",
     "Descriptor of the file into which a Python process writes its stacks when hvdrun asks for them. Set by hvdrun.",
     nothing},
    {"HVD_ELASTIC", "HOROVOD_ELASTIC", "0",
     "1: ranks may be added later, so that a lone rank still joins the job. Set by hvdrun in "
     "elastic jobs.",
     nothing},
    {"HVD_PROCESS", "", "-1",
     "Number of this process in an elastic job, where its rank may change. Set by hvdrun. -1: the job is not elastic.",
     [](Config& c, std::string_view t) {
       c.job.process = parse_within<int>(t, -1, 1'000'000'000, "a process number, or -1");
     }},
    {"HVD_SERVERS", "", "0", "Number of parameter servers of the job, beside its ranks. Set by hvdrun --servers.",
     [](Config& c, std::string_view t) { c.job.servers = parse_count(t); }},
    {"HVD_SERVER", "", "-1",
     "Number of this process among the job's parameter servers. Set by hvdrun. -1: the process is a rank.",
     [](Config& c, std::string_view t) {
       c.job.server = parse_within<int>(t, -1, 1'000'000, "a server's number, or -1");
     }},
    {"HVD_SERVER_COPIES", "", "1",
     "2: parameter servers keep every row twice, on two of them. A push completes when both have applied it; the loss "
     "of one of them loses no rows.",
     [](Config& c, std::string_view t) { c.servers.copies = parse_within<int>(t, 1, 2, "1 or 2"); }},
    {"HVD_SERVER_MEMORY", "", "0",
     "Bytes that a parameter server may use for rows; a push that needs more is refused. 0: no limit.",
     [](Config& c, std::string_view t) { c.servers.memory_bytes = parse_bytes(t); }},
    {"HVD_SERVER_PARTS", "", "1",
     "Parts of all tables for each parameter server, 1 to 4. With more than one, parts move from a server that has far "
     "more to do than the others. 1: nothing moves.",
     [](Config& c, std::string_view t) { c.servers.parts = parse_within<int>(t, 1, 4, "1 to 4"); }},
    {"HVD_SERVER_SNAPSHOT", "", "",
     "The folder to which a parameter server writes its state, every HVD_SERVER_SNAPSHOT_SECONDS, and from which it "
     "begins when it is started again. Empty: none.",
     [](Config& c, std::string_view t) { c.servers.snapshot = t; }},
    {"HVD_SERVER_SNAPSHOT_SECONDS", "", "60", "Seconds between a parameter server's snapshots. 0: none at intervals.",
     [](Config& c, std::string_view t) { c.servers.snapshot_interval = parse_seconds(t); }},
    {"HVD_SERVER_START", "", "0", "How often hvdrun has restarted this parameter server. Set by hvdrun, for scripts.",
     [](Config&, std::string_view t) { static_cast<void>(parse_count(t)); }},
    {"HVD_RESUME", "", "",
     "The directory of the checkpoints with which hvd.checkpoint.keep() goes on, and to which it adds more. Set by "
     "hvdrun --resume.",
     nothing},
    {"HVD_TORCH_VARIABLES", "", "",
     "Internal. The variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, ...) that hvdrun or init() has set, and "
     "their values, so that they are not taken for torchrun's own.",
     nothing},
    {"HVD_LOG_LEVEL", "HOROVOD_LOG_LEVEL", "warning",
     "Lines below this level are not written: trace, debug, info, warning, error (also called fatal), off.",
     [](Config& c, std::string_view t) { c.diagnosis.log_level = parse_log_level(t); }},
    {"HVD_TIMELINE", "HOROVOD_TIMELINE", "",
     "A file into which rank 0 writes what its operations did when, for chrome://tracing. Empty or DYNAMIC: none until "
     "start_timeline() is called.",
     [](Config& c, std::string_view t) { c.diagnosis.timeline = t; }},
    {"HVD_TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE_MARK_CYCLES", "0", "1: the timeline marks each response list.",
     [](Config& c, std::string_view t) { c.diagnosis.timeline_marks_rounds = parse_flag(t); }},
    {"HVD_JOIN_DIVISOR", "", "all",
     "The divisor of an average while some ranks have joined: all, the number of all ranks; contributing, of those "
     "that have not joined.",
     [](Config& c, std::string_view t) {
       c.negotiation.join_divisor = parse_choice<JoinDivisor>(t, kJoinDivisors, "all or contributing");
     }},
    {"HVD_JOIN_SCOPE", "", "all",
     "Which collectives go on without ranks that have joined: all that can; allreduce, only that, and the others "
     "fail, as Horovod's do.",
     [](Config& c, std::string_view t) {
       c.negotiation.join_scope = parse_choice<JoinScope>(t, kJoinScopes, "all or allreduce");
     }},
    {"HVD_FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD", "auto",
     "Bytes of small tensors that are reduced as one bucket. 0: each tensor by itself; auto: 8 MiB inside a host, "
     "between hosts up to 64 MiB, as the links' costs suggest.",
     [](Config& c, std::string_view t) {
       c.negotiation.fusion_threshold_bytes = t == "auto" ? kAutomaticThreshold : parse_bytes(t);
     }},
    {"HVD_CYCLE_TIME", "HOROVOD_CYCLE_TIME", "0.03",
     "Milliseconds for which small tensors that are ready may wait for others that only some ranks have submitted yet, "
     "to be reduced with them. Nothing waits while nothing else is under way. 0: never.",
     [](Config& c, std::string_view t) {
       c.negotiation.coalescing = parse_duration<Milliseconds>(t, 0, 1000, "a number of milliseconds, at most 1000");
     }},
    {"HVD_AUTOTUNE", "HOROVOD_AUTOTUNE", "0",
     "1: rank 0 times steps with several values of HVD_FUSION_THRESHOLD and others, and the job keeps those with which "
     "it is clearly faster than with the defaults. What is set by hand is not tried.",
     [](Config& c, std::string_view t) { c.autotune.enabled = parse_flag(t); }},
    {"HVD_AUTOTUNE_LOG", "HOROVOD_AUTOTUNE_LOG", "",
     "A file into which rank 0 then writes what it has timed, as comma-separated values. Empty: none.",
     [](Config& c, std::string_view t) { c.autotune.log = t; }},
    {"HVD_AUTOTUNE_WARMUP_SAMPLES", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "3", "Samples at the start that do not count.",
     [](Config& c, std::string_view t) { c.autotune.warmup_samples = parse_count(t); }},
    {"HVD_AUTOTUNE_STEPS_PER_SAMPLE", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "3",
     "Steps in a sample. Between samples with different values one more step goes by.",
     [](Config& c, std::string_view t) {
       c.autotune.steps_per_sample = parse_within<int>(t, 1, 1'000'000, "a whole number from 1 to 1000000");
     }},
    {"HVD_AUTOTUNE_MAX_SAMPLES", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "24",
     "Samples in which better values are looked for. Up to 24 more compare what was found with the defaults.",
     [](Config& c, std::string_view t) { c.autotune.max_samples = parse_count(t); }},
    {"HVD_CACHE_CAPACITY", "HOROVOD_CACHE_CAPACITY", "1024",
     "Capacity of the response cache, in operations. A cached request is sent as one bit. 0: no cache.",
     [](Config& c, std::string_view t) { c.negotiation.cache_capacity = parse_count(t); }},
    {"HVD_SCHEDULE_LOCK", "", "1", "0: ranks negotiate in every step, also when steps repeat.",
     [](Config& c, std::string_view t) { c.negotiation.schedule_lock = parse_flag(t); }},
    {"HVD_STALL_CHECK_DISABLE", "HOROVOD_STALL_CHECK_DISABLE", "0",
     "1: say nothing when some ranks wait for an operation that others have not submitted, and do not give it up: "
     "HVD_STALL_SHUTDOWN_TIME_SECONDS has no effect.",
     [](Config& c, std::string_view t) { c.timeouts.stall_check = !parse_flag(t); }},
    {"HVD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS", "10",
     "Seconds after which a stall is reported, with the missing ranks and the names of the operations.",
     [](Config& c, std::string_view t) { c.timeouts.stall_warning = parse_seconds(t); }},
    {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0",
     "Timeout for ranks that do not respond. An operation that some ranks never submit fails on the ranks that wait; "
     "the job is aborted if a rank is stopped inside an operation, or as the coordinator or the leader of a host. 0: "
     "no timeout.",
     [](Config& c, std::string_view t) { c.timeouts.stall_limit = parse_seconds(t); }},
    {"HVD_COLLECTIVE_TIMEOUT_SECONDS", "HOROVOD_GLOO_TIMEOUT_SECONDS", "300",
     "Seconds that a rank waits for a live but silent peer in the middle of a collective before it aborts the job. "
     "0: as long as the peer lives.",
     [](Config& c, std::string_view t) {
       c.timeouts.collective = parse_seconds(t);
       if (c.timeouts.collective == Duration::zero()) c.timeouts.collective = kMaxWait;
     }},
    {"HVD_CPU_BACKEND", "HOROVOD_CPU_OPERATIONS", "auto",
     "What moves tensors in ordinary memory. host: shared memory and TCP. mpi: MPI's collectives, if MPI has started "
     "the job. mpi-messages: shared memory inside a host, MPI's messages between hosts. auto: shared memory inside a "
     "host, and between hosts TCP, or MPI's messages if MPI has started the job and they are measured to be faster.",
     [](Config& c, std::string_view t) {
       // Horovod's documents write MPI, GLOO and CCL, and it takes both cases.
       c.data_plane.cpu_backend =
           parse_choice<CpuBackend>(in_lower_case(t), kCpuBackends, "auto, host, mpi or mpi-messages");
     }},
    {"HVD_MPI_LIB", "", "",
     "Path of the MPI library (libmpi.so). Empty: the one that is loaded already, else that of the launcher, else any.",
     [](Config& c, std::string_view t) { c.data_plane.mpi_library = t; }},
    {"HVD_PLUGINS", "", "",
     "Paths of plugins (hvd_plugin.h), separated by colons. The backend with the highest score performs a collective; "
     "at equal scores hvd's own comes first.",
     [](Config& c, std::string_view t) { c.data_plane.plugins = t; }},
    {"HVD_DETERMINISTIC", "", "1",
     "0: results may depend, in their last bits, on which tensors are reduced together, where that is faster.",
     [](Config& c, std::string_view t) { c.data_plane.deterministic = parse_flag(t); }},
    {"HVD_ALGORITHM", "", "",
     "Which algorithm serves an allreduce of which size: `allreduce:0-64k=direct;64k-=ring`. Sizes in bytes or with k, "
     "m, g; algorithms between hosts: one_shot, bruck, direct, ring, and with HVD_DETERMINISTIC=0 halving_doubling; in "
     "jobs on one host, where the ranks' memory allows it: one_step, sliced, resident, reading. Sizes left out, or "
     "empty: what measurements suggest.",
     [](Config& c, std::string_view t) { c.data_plane.algorithm = t; }},
    {"HVD_SOCKETS_PER_PEER", "", "0",
     "TCP connections between two ranks on each network, up to 64; of two ranks the smaller number counts. 0: 1, from "
     "25 Gb/s 2, from "
     "100 Gb/s 4, by the speed of the network interface.",
     [](Config& c, std::string_view t) {
       c.data_plane.sockets_per_peer = parse_within<int>(t, 0, 64, "a whole number from 0 to 64");
     }},
    {"HVD_NETWORK_INTERFACES", "", "",
     "Names of network interfaces, or their networks (10.1.0.0/16), separated by commas: the connections between ranks "
     "on different hosts spread over those of them that the host has, each of which is in a network of its own. Set by "
     "hvdrun's --network-interface. "
     "Empty: the one of HVD_ADDRESS.",
     [](Config& c, std::string_view t) { c.data_plane.network_interfaces = t; }},
    {"HVD_SHARED_MEMORY", "", "1", "0: ranks of one host use TCP as if they were on different hosts.",
     [](Config& c, std::string_view t) { c.data_plane.shared_memory = parse_flag(t); }},
    {"HVD_CHUNK_BYTES", "", "262144",
     "Bytes that a rank publishes in shared memory at a time; best if two fit into the L2 cache.",
     [](Config& c, std::string_view t) { c.data_plane.chunk_bytes = parse_chunk_bytes(t); }},
    {"HVD_INSTRUCTION_SET", "", "auto",
     "Instructions that reductions use: scalar, avx2, avx512 or neon, if the processor has them; auto: the best that "
     "it has. Results do not depend on it.",
     [](Config& c, std::string_view t) { c.data_plane.instruction_set = t; }},
    {"HVD_ARENA_LIMIT", "", "34359738368",
     "Bytes that a rank may take from the memory that the ranks of a host share for tensors (hvd_alloc, "
     "hvd.torch.empty). Memory and address space are taken when they are asked for. 0: no such memory, ordinary one "
     "instead.",
     [](Config& c, std::string_view t) { c.data_plane.arena_limit_bytes = parse_bytes(t); }},
    {"HVD_CUDA_LIB", "", "",
     "The CUDA driver, a name or path, opened when there is the first GPU tensor. Empty: libcuda.so.1.",
     [](Config& c, std::string_view t) { c.gpu.cuda_library = t; }},
    {"HVD_NCCL_LIB", "", "",
     "NCCL, a name or path, opened when there is the first GPU tensor. Empty: the copy that a framework has brought "
     "into the process, else libnccl.so.2.",
     [](Config& c, std::string_view t) { c.gpu.nccl_library = t; }},
    {"HVD_GPU_THROUGH_HOST", "", "0",
     "1: what NCCL cannot do with GPU tensors, everything if there is no NCCL, goes through the host's memory: two "
     "more copies, during which the engine waits. TensorFlow's GPU tensors all go that way then. 0: it is an error.",
     [](Config& c, std::string_view t) { c.gpu.through_host = parse_flag(t); }},
    {"HVD_TENSORFLOW_UNTESTED", "", "0",
     "1: hvd.tensorflow is imported also with a TensorFlow newer than those that it was tried with.",
     [](Config&, std::string_view t) { parse_flag(t); }},  // read in Python
};

const Setting* find_setting(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kSettings), std::end(kSettings), [&](const Setting& k) { return name == k.name; });
  return it == std::end(kSettings) ? nullptr : it;
}

const char* nearest_setting(std::string_view name) {
  return std::min_element(std::begin(kSettings), std::end(kSettings),
                          [&](const Setting& a, const Setting& b) {
                            return edit_distance(name, a.name) < edit_distance(name, b.name);
                          })
      ->name;
}

void parse(const Setting& setting, Config& config, const std::string& name, const std::string& value) {
  try {
    setting.parse(config, value);
  } catch (const InvalidArgument& expected) {
    throw InvalidArgument(name + "='" + value + "': expected " + expected.what());
  }
}

}  // namespace

Environment process_environment() { return parse_environment(environ); }

ConfigResult read_config(const Environment& environment) {
  ConfigResult result;
  for (const Setting& setting : kSettings) {
    auto it = environment.find(setting.name);
    if (it == environment.end() && *setting.alias != '\0') it = environment.find(setting.alias);
    if (it == environment.end()) {
      parse(setting, result.config, setting.name, setting.default_text);
    } else {
      parse(setting, result.config, it->first, it->second);
      result.config.given.insert(setting.name);
    }
  }
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("HVD_") || find_setting(name) != nullptr) continue;
    result.warnings.push_back("unknown environment variable " + name + " (did you mean " + nearest_setting(name) +
                              "?)");
  }
  if (result.config.job.rank >= result.config.job.size) {
    throw InvalidArgument("HVD_RANK=" + std::to_string(result.config.job.rank) +
                          " is not below HVD_SIZE=" + std::to_string(result.config.job.size));
  }
  if (result.config.servers.copies > 1 && result.config.servers.parts > 1) {
    throw InvalidArgument(
        "HVD_SERVER_PARTS is for servers with one copy of each row: leave it or HVD_SERVER_COPIES out");
  }
  if (result.config.job.server >= result.config.job.servers) {
    throw InvalidArgument("HVD_SERVER=" + std::to_string(result.config.job.server) +
                          " is not below HVD_SERVERS=" + std::to_string(result.config.job.servers));
  }
  return result;
}

std::vector<std::string> shared_settings(const Config& config) {
  const Config::Negotiation& negotiation = config.negotiation;
  const Config::DataPlane& data_plane = config.data_plane;
  const auto flag = [](bool value) { return std::string(value ? "1" : "0"); };
  return {"HVD_JOIN_DIVISOR=" + name_of<JoinDivisor>(negotiation.join_divisor, kJoinDivisors),
          "HVD_JOIN_SCOPE=" + name_of<JoinScope>(negotiation.join_scope, kJoinScopes),
          "HVD_FUSION_THRESHOLD=" + (negotiation.fusion_threshold_bytes == kAutomaticThreshold
                                         ? "auto"
                                         : std::to_string(negotiation.fusion_threshold_bytes)),
          "HVD_CHUNK_BYTES=" + std::to_string(data_plane.chunk_bytes),
          "HVD_SCHEDULE_LOCK=" + flag(negotiation.schedule_lock),
          "HVD_DETERMINISTIC=" + flag(data_plane.deterministic),
          "HVD_CPU_BACKEND=" + name_of<CpuBackend>(data_plane.cpu_backend, kCpuBackends),
          "HVD_PLUGINS=" + data_plane.plugins,
          "HVD_ALGORITHM=" + data_plane.algorithm,
          "HVD_ARENA_LIMIT=" + std::to_string(data_plane.arena_limit_bytes),
          "HVD_GPU_THROUGH_HOST=" + flag(config.gpu.through_host),
          "HVD_SHARED_MEMORY=" + flag(data_plane.shared_memory)};
}

std::string environment_documentation() {
  std::string text =
      "# Environment variables\n\n"
      "Generated from the table in `core/config.cc` by `python -m hvd --environment`. hvd reads them once, in "
      "`init()`,\nunless the table says otherwise. The Horovod variable in the second column is read, too; the "
      "`HVD_*` variable takes\nprecedence. An unknown `HVD_*` variable produces a warning that suggests the nearest "
      "name.\n\n"
      "| Variable | Also read | Default | Meaning |\n|---|---|---|---|\n";
  for (const Setting& setting : kSettings) {
    const std::string alias = *setting.alias != '\0' ? "`" + std::string(setting.alias) + "`" : "";
    const std::string value = *setting.default_text != '\0' ? "`" + std::string(setting.default_text) + "`" : "";
    text += "| `" + std::string(setting.name) + "` | " + alias + " | " + value + " | " + setting.documentation + " |\n";
  }
  return text;
}

Knobs knobs_of(const Config& config) {
  return {.fusion_threshold_bytes = config.negotiation.fusion_threshold_bytes,
          .coalescing_us = std::chrono::duration_cast<std::chrono::microseconds>(config.negotiation.coalescing).count(),
          .chunk_bytes = config.data_plane.chunk_bytes};
}

bool Config::Timeouts::gives_up_stalls() const { return stall_check && stall_limit > Duration::zero(); }

Duration Config::Timeouts::silence_limit(int level) const {
  constexpr Duration kShortest = 2s;  // a live rank may be without a CPU for this long
  if (!gives_up_stalls() || stall_limit >= collective) return collective;
  const Duration margin = std::clamp<Duration>(stall_limit / 4, 1s, 10s);
  return std::min(std::max<Duration>(stall_limit, kShortest) + level * margin, collective);
}

}  // namespace hvd
