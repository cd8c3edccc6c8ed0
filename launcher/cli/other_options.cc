#include "launcher/cli/other_options.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "core/base/error.h"
#include "core/base/text.h"

namespace hvd::launcher {
namespace {

using enum Treatment;

constexpr unsigned kAll = kHorovodrun | kMpirun | kHydra | kTorchrun;

constexpr std::string_view kChosen = "hvd chooses its algorithms itself; HVD_ALGORITHM overrides it";
constexpr std::string_view kStoreIsOurs = "ranks find each other through hvdrun";
constexpr std::string_view kNoRestart = "a job that has failed is not started again";
constexpr std::string_view kFixedSize = "-np fixes the number of processes; --min-np and --max-np let it change";
constexpr std::string_view kNoDebugger =
    "hvdrun starts no debugger; run one as the program: hvdrun -np 2 xterm -e gdb --args ./program";
constexpr std::string_view kOwnAgents = "hvdrun starts agents of its own; --verbose says what they do";
constexpr std::string_view kNoService = "hvdrun keeps no service between jobs";
constexpr std::string_view kFirstFailureEnds = "use --min-np to continue after a process fails";
constexpr std::string_view kNoXml = "hvdrun has no machine-readable output";
constexpr std::string_view kCopiesNothing =
    "hvdrun copies nothing: the program must be on each host, under its own path";
constexpr std::string_view kFilesOfParameters = "hvdrun reads no parameter files: use -mca NAME VALUE";
constexpr std::string_view kNoPatterns = "--output-filename DIR writes DIR/rank.N/stdout and stderr";
constexpr std::string_view kHasWholeEnvironment =
    "ranks have hvdrun's environment: start it as env -i VAR=value hvdrun ...";
constexpr std::string_view kDefault = "this is the default";
constexpr std::string_view kNoSpawn = "hvd does not support MPI_Comm_spawn";
constexpr std::string_view kMpisOwn = "it is for the MPI library";

// A name may stand for several, with spaces between them.
constexpr OtherOption kOptions[] = {
    // --- Number of processes and programs ---
    {"-n --wdir", kMpirun | kHydra, same, 1, ""},
    {"-c -N --wd", kMpirun, same, 1, ""},
    {"-np", kHorovodrun | kMpirun | kHydra, same, 1, ""},
    {"--num-proc", kHorovodrun, alias, 1, "--np={}"},
    {"--npernode", kMpirun, alias, 1, "-N{}"},
    {"--pernode", kMpirun, alias, 0, "-N1"},
    {"-ppn", kHydra, alias, 1, "-N{} --oversubscribe"},
    {"--nproc-per-node", kTorchrun, alias, 1, "-N{} --oversubscribe --python"},
    {"--nnodes", kTorchrun, same, 1, ""},
    {"--standalone", kTorchrun, alias, 0, "--launcher=local --python"},
    {"-m --module --no-python", kTorchrun, same, 0, ""},
    {"--run-path", kTorchrun, alias, 0, "--python"},
    {"--app", kMpirun, refused, 1, "separate several programs by colons on the command line"},
    {"-configfile", kHydra, refused, 1, "separate several programs by colons on the command line"},
    {"--path", kMpirun, refused, 1, "-x PATH=... says where programs are looked for"},
    {"--set-cwd-to-session-dir", kMpirun4, refused, 0, "there is no such folder; --wdir DIR"},
    {"--index-argv-by-rank", kMpirun4, refused, 0, "each rank finds its number in HVD_RANK"},
    {"--preload-binary -s", kMpirun, refused, 0, kCopiesNothing},
    {"--preload-files", kMpirun, refused, 1, kCopiesNothing},
    {"--pset", kMpirun5, no_effect, 1, "process sets of hvd are made by the script"},
    {"--personality", kMpirun, no_effect, 1, kMpisOwn},
    {"--role", kTorchrun, no_effect, 1, "all processes are alike"},
    {"--min-np --max-np --elastic-timeout --reset-limit --host-discovery-script", kHorovodrun, same, 1, ""},
    {"--min-num-proc", kHorovodrun, alias, 1, "--min-np={}"},
    {"--max-num-proc", kHorovodrun, alias, 1, "--max-np={}"},
    {"--blacklist-cooldown-range", kHorovodrun, alias, 2, "--cooldown-range={}"},
    {"--soft", kMpirun5, refused, 0, kFixedSize},
    {"--arch", kMpirun5, refused, 1, "hosts are chosen with -H or --hostfile"},
    {"--file", kMpirun5, refused, 1, "separate several programs by colons on the command line"},

    // --- Environment ---
    {"-x", kMpirun, same, 1, ""},
    {"-env -genv", kHydra, same, 2, ""},
    {"-envlist -genvlist", kHydra, same, 1, ""},
    {"-envall -genvall", kHydra, no_effect, 0, kDefault},
    {"-envnone -genvnone", kHydra, refused, 0, kHasWholeEnvironment},
    {"--mca --gmca", kMpirun, same, 2, ""},
    {"--omca --gomca", kMpirun5, alias, 2, "--mca={}"},
    {"--prtemca", kMpirun5, no_effect, 2, "hvdrun does not start processes by PRRTE"},
    {"--pmixmca", kMpirun5, no_effect, 2, "hvdrun does not start processes by PMIx"},
    {"-am --tune", kMpirun, refused, 1, kFilesOfParameters},
    {"--amca", kMpirun5, refused, 1, kFilesOfParameters},
    {"--prefix", kMpirun, no_effect, 1,
     "hvd is in the same folder on each host; -x PATH and -x LD_LIBRARY_PATH pass paths on"},
    {"--noprefix", kMpirun, no_effect, 0, kDefault},
    {"--tmpdir", kMpirun5, no_effect, 1, "hvdrun keeps no session folder"},
    {"--initial-errhandler --with-ft", kMpirun5, no_effect, 1, kMpisOwn},
    {"--display-comm --display-comm-finalize", kMpirun5, no_effect, 0, kMpisOwn},
    {"-usize", kHydra, no_effect, 1, kNoSpawn},
    {"--max-vm-size", kMpirun, no_effect, 1, kNoSpawn},

    // --- Hosts ---
    {"-H", kHorovodrun | kMpirun, same, 1, ""},
    {"--host --machinefile", kMpirun | kHydra, same, 1, ""},
    {"--hosts", kHorovodrun | kHydra, alias, 1, "--host={}"},
    {"-hostlist -machine -machines -machinelist", kHydra, alias, 1, "--host={}"},
    {"--hostfile", kHorovodrun | kMpirun | kHydra, same, 1, ""},
    {"--default-hostfile", kMpirun, alias, 1, "--hostfile={}"},
    {"-f", kHydra, alias, 1, "--hostfile={}"},
    {"--slots-per-host", kHorovodrun, same, 1, ""},
    {"--nolocal", kMpirun, same, 0, ""},
    {"-skip-launch-node", kHydra, alias, 0, "--nolocal"},
    {"-order-nodes", kHydra, refused, 1, "hosts are taken in the order in which they are named"},
    {"-localhost", kHydra, no_effect, 1, "hvdrun knows the names of its own host"},
    {"-rmk", kHydra, no_effect, 1, "hvdrun finds the allocation of Slurm, LSF and PBS by itself"},
    {"-hybrid-hosts", kHydra, no_effect, 0, kDefault},
    {"--do-not-resolve", kMpirun4, no_effect, 0, "hvdrun asks for addresses only where it needs them"},
    {"--use-regexp", kMpirun4, no_effect, 0, "agents get the full list of hosts"},
    {"--node-rank", kTorchrun, same, 1, "only 0, for one host; start hvdrun once for all hosts"},
    {"--rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf", kTorchrun, no_effect, 1, kStoreIsOurs},
    {"--local-addr", kTorchrun, no_effect, 1, "--network-interface says which networks are used"},
    {"--master-addr", kTorchrun, alias, 1, "--genv=MASTER_ADDR={}"},
    {"--master-port", kTorchrun, alias, 1, "--genv=MASTER_PORT={}"},

    // --- How processes are started ---
    {"--launcher", kHydra, same, 1, "fork is local, and rsh is --rsh rsh"},
    {"-bootstrap", kHydra, alias, 1, "--launcher={}"},
    {"-launcher-exec -bootstrap-exec", kHydra, alias, 1, "--rsh={}"},
    {"--mpi --gloo", kHorovodrun, same, 0, ""},
    {"--jsrun", kHorovodrun, refused, 0, "jobs of LSF are not started by jsrun; within one, use --mpi"},
    {"-p --ssh-port -i --ssh-identity-file --network-interface --start-timeout", kHorovodrun, same, 1, ""},
    {"-p", kMpirun5, different, 0, "it is --ssh-port here"},
    {"--network-interfaces", kHorovodrun, alias, 1, "--network-interface={}"},
    {"-iface", kHydra, alias, 1, "--network-interface={}"},
    {"--spawn-timeout", kMpirun5, alias, 1, "--start-timeout={}"},
    {"--allow-run-as-root", kMpirun, same, 0, "hvdrun may be run by anybody"},
    {"--launch-agent", kMpirun, no_effect, 1, kOwnAgents},
    {"--leave-session-attached --debug-daemons --debug-daemons-file", kMpirun, no_effect, 0, kOwnAgents},
    {"--debug-devel -d --fwd-mpirun-port --enable-instant-on-support", kMpirun4, no_effect, 0, kOwnAgents},
    {"-enable-x", kHydra, no_effect, 0, "--rsh \"ssh -X\" forwards X"},
    {"-disable-x -enable-hostname-propagation", kHydra, no_effect, 0, kDefault},
    {"-demux", kHydra, no_effect, 1, "hvdrun always uses epoll"},
    {"-pmi-port", kHydra, no_effect, 0, kStoreIsOurs},
    {"-pmi_args", kHydra, refused, 4, "it is for Hydra's own use"},
    {"-disable-hostname-propagation", kHydra, no_effect, 0, "HVD_HOSTNAME is a host's name in messages"},
    {"-nameserver", kHydra, no_effect, 1, kNoSpawn},
    {"--ompi-server", kMpirun4, no_effect, 1, kNoSpawn},
    {"--dvm", kMpirun, refused, 0, kNoService},
    {"--novm", kMpirun4, no_effect, 0, kDefault},
    {"-hnp", kMpirun4, refused, 1, kNoService},
    {"--disable-cache", kHorovodrun, no_effect, 0, "hvdrun has no start-up checks to cache"},
    {"--start-method", kTorchrun, no_effect, 1, "ranks are programs, started by hvdrun"},
    {"--monitor-interval", kTorchrun, no_effect, 1, "hvdrun is told when a process ends"},

    // --- Where ranks run ---
    {"--bind-to --map-by", kMpirun | kHydra, same, 1, ""},
    {"-binding", kHydra, alias, 1, "--bind-to={}"},
    {"--rank-by --cpu-set", kMpirun, same, 1, ""},
    {"--bind-to-core", kMpirun, alias, 0, "--bind-to=core"},
    {"--bind-to-socket", kMpirun4, alias, 0, "--bind-to=socket"},
    {"--bynode", kMpirun, alias, 0, "--map-by=node"},
    {"--bycore", kMpirun, alias, 0, "--map-by=core"},
    {"--byslot", kMpirun, alias, 0, "--map-by=slot"},
    {"--npersocket", kMpirun, alias, 1, "--map-by=ppr:{}:socket"},
    {"--ppr", kMpirun, alias, 1, "--map-by=ppr:{}"},
    {"--cpus-per-proc --cpus-per-rank", kMpirun, alias, 1, "--map-by=slot:PE={}"},
    {"--cpu-list", kMpirun, alias, 1, "--cpu-set={}"},
    {"--use-hwthread-cpus", kMpirun, alias, 0, "--slots-per-host=hwthread"},
    {"--oversubscribe --nooversubscribe", kMpirun, same, 0, ""},
    {"--rankfile", kMpirun, refused, 1, "ranks are placed with -H, --map-by and --bind-to"},
    {"-rf", kMpirun4, refused, 1, "ranks are placed with -H, --map-by and --bind-to"},
    {"-rankmap", kHydra, refused, 1, "ranks are placed with -H, --map-by and --bind-to"},
    {"--cartofile -cf", kMpirun4, no_effect, 1, "hvdrun reads the CPU topology from the kernel"},
    {"-topolib", kHydra, no_effect, 1, "hvdrun reads the CPU topology from the kernel"},
    {"-membind", kHydra, refused, 1, "Linux allocates memory where it is first touched; run the program under numactl"},
    {"--numa-binding", kTorchrun, refused, 1, "--bind-to numa"},
    {"-gpus-per-proc -g", kHydra, alias, 1, "--gpus-per-rank={}"},
    {"-gpu-subdevs-per-proc", kHydra, refused, 1, "hvdrun assigns whole GPUs only: --gpus-per-rank N"},
    {"--virtual-local-rank", kTorchrun, refused, 0,
     "--gpus-per-rank 1 lets each rank see its own GPU alone, as device 0"},
    {"--thread-affinity", kHorovodrun, no_effect, 1, "hvd's threads stay with their rank: --bind-to core"},

    // --- Display of the plan ---
    {"--report-bindings --display-map", kMpirun, same, 0, ""},
    {"--display-allocation --display-devel-map --display-devel-allocation", kMpirun, alias, 0, "--display-map"},
    {"--display-diffable-map", kMpirun4, alias, 0, "--display-map"},
    {"--display-topo", kMpirun, alias, 0, "--display-map --report-bindings"},
    {"--display", kMpirun5, same, 1, "map, allocation, bind and topo; the variants for developers print the same"},
    {"--runtime-options", kMpirun5, refused, 1, "its words are options here: --dry-run, --timeout SECONDS, ..."},
    {"--do-not-launch", kMpirun, alias, 0, "--dry-run"},
    {"--show-progress", kMpirun, alias, 0, "--verbose"},

    // --- Input and output ---
    {"--stdin", kMpirun, same, 1, ""},
    {"--output-filename", kHorovodrun | kMpirun, same, 1, ""},
    {"--output-directory", kMpirun5, alias, 1, "--output-filename={}"},
    {"--log-dir", kTorchrun, alias, 1, "--output-filename={}"},
    {"--tee -t --redirects -r", kTorchrun, same, 1, "3 or 0: both streams of all ranks, or none"},
    {"--local-ranks-filter", kTorchrun, refused, 1, "--output-filename DIR --redirects 3 keeps the terminal free"},
    {"--duplicate-stdout-filters --duplicate-stderr-filters", kTorchrun, refused, 1,
     "grep in the files of --output-filename DIR"},
    {"--logs-specs", kTorchrun, no_effect, 1, "hvdrun writes what --output-filename says"},
    {"--event-log-handler", kTorchrun, no_effect, 1, "hvdrun records no events"},
    {"--output", kMpirun5, same, 1, "tag, timestamp, merge-stderr-to-stdout, dir=DIR and nocopy"},
    {"--tag-output --timestamp-output --merge-stderr-to-stdout", kMpirun, same, 0, ""},
    {"-prepend-rank -l", kHydra, alias, 0, "--tag-output"},
    {"-prepend-pattern", kHydra, refused, 1,
     "--tag-output begins lines with the rank, --timestamp-output with the time"},
    {"--prefix-output-with-timestamp -prefix-timestamp", kHorovodrun, alias, 0, "--timestamp-output"},
    {"-outfile-pattern -outfile -errfile-pattern -errfile", kHydra, refused, 1, kNoPatterns},
    {"-output-from", kHydra, refused, 1, "--output-filename DIR --redirects 3 keeps the terminal free"},
    {"--stream-buffering", kMpirun5, no_effect, 1, "-x PYTHONUNBUFFERED=1 has Python write lines at once"},
    {"--xml", kMpirun, refused, 0, kNoXml},
    {"-xml-file", kMpirun4, refused, 1, kNoXml},
    {"--parsable --parseable", kMpirun5, refused, 0, kNoXml},
    {"--xterm", kMpirun, refused, 1, "run xterm as the program: hvdrun -np 2 xterm -hold -e ./program"},
    {"--verbose", kHorovodrun | kMpirun | kHydra, same, 0, ""},
    {"-v", kMpirun | kHydra, same, 0, ""},
    {"-v", kHorovodrun, different, 0, "it is --verbose here; --version is the same"},
    {"-q --quiet", kMpirun4, same, 0, ""},
    {"--no-aggregate-help", kMpirun5, no_effect, 0, "hvdrun prints each message once"},

    // --- How a job ends ---
    {"--timeout", kMpirun, same, 1, ""},
    {"--shutdown-timeout", kTorchrun, alias, 1, "--grace={}"},
    {"--report-state-on-timeout --disable-recovery", kMpirun, no_effect, 0, kDefault},
    {"--get-stack-traces", kMpirun, no_effect, 0, "a job that reaches its --timeout says where its ranks are anyway"},
    {"--enable-recovery --continuous", kMpirun, refused, 0, kFirstFailureEnds},
    {"--max-restarts", kMpirun | kTorchrun, no_effect, 1, kNoRestart},
    {"--report-child-jobs-separately", kMpirun, no_effect, 0, kNoSpawn},
    {"-disable-auto-cleanup", kHydra, refused, 0, kFirstFailureEnds},
    {"-enable-auto-cleanup", kHydra, no_effect, 0, kDefault},
    {"-print-all-exitcodes", kHydra, alias, 0, "--verbose"},
    {"--forward-signals", kMpirun5, no_effect, 1,
     "SIGUSR1 and SIGUSR2 reach the ranks anyway; SIGUSR1 ends an elastic job early"},
    {"--signals-to-handle", kTorchrun, no_effect, 1,
     "SIGUSR1 and SIGUSR2 reach the ranks anyway; SIGUSR1 ends an elastic job early"},
    {"--report-pid", kMpirun, refused, 1, "the shell has it: hvdrun ... & echo $!"},
    {"--report-uri", kMpirun, refused, 1, kNoService},
    {"--report-events", kMpirun4, refused, 1, kNoService},
    {"--output-proctable", kMpirun, refused, 0, kNoDebugger},
    {"--debug", kMpirun | kHydra, refused, 0, kNoDebugger},
    {"-tv", kMpirun4, refused, 0, kNoDebugger},
    {"--debugger", kMpirun4, refused, 1, kNoDebugger},
    {"--stop-on-exec --stop-in-app", kMpirun5, refused, 0, kNoDebugger},
    {"--stop-in-init", kMpirun5, refused, 1, kNoDebugger},

    // --- Settings of the ranks ---
    {"--config-file", kHorovodrun, same, 1, ""},
    {"--fusion-threshold-mb", kHorovodrun, alias, 1, "--genv=HVD_FUSION_THRESHOLD={MiB}"},
    {"--cycle-time-ms", kHorovodrun, alias, 1, "--genv=HVD_CYCLE_TIME={}"},
    {"--cache-capacity", kHorovodrun, alias, 1, "--genv=HVD_CACHE_CAPACITY={}"},
    {"--hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather "
     "--torus-allreduce --no-torus-allreduce",
     kHorovodrun, no_effect, 0, kChosen},
    {"--autotune", kHorovodrun, alias, 0, "--genv=HVD_AUTOTUNE=1"},
    {"--no-autotune", kHorovodrun, alias, 0, "--genv=HVD_AUTOTUNE=0"},
    {"--autotune-log-file", kHorovodrun, alias, 1, "--genv=HVD_AUTOTUNE_LOG={}"},
    {"--autotune-warmup-samples", kHorovodrun, alias, 1, "--genv=HVD_AUTOTUNE_WARMUP_SAMPLES={}"},
    {"--autotune-steps-per-sample", kHorovodrun, alias, 1, "--genv=HVD_AUTOTUNE_STEPS_PER_SAMPLE={}"},
    {"--autotune-bayes-opt-max-samples", kHorovodrun, alias, 1, "--genv=HVD_AUTOTUNE_MAX_SAMPLES={}"},
    {"--autotune-gaussian-process-noise", kHorovodrun, no_effect, 1, "hvd's tuner has no such model"},
    {"--timeline-filename", kHorovodrun, alias, 1, "--genv=HVD_TIMELINE={}"},
    {"--timeline-mark-cycles", kHorovodrun, alias, 0, "--genv=HVD_TIMELINE_MARK_CYCLES=1"},
    {"--no-timeline-mark-cycles", kHorovodrun, alias, 0, "--genv=HVD_TIMELINE_MARK_CYCLES=0"},
    {"--stall-check", kHorovodrun, alias, 0, "--genv=HVD_STALL_CHECK_DISABLE=0"},
    {"--no-stall-check", kHorovodrun, alias, 0, "--genv=HVD_STALL_CHECK_DISABLE=1"},
    {"--stall-check-warning-time-seconds", kHorovodrun, alias, 1, "--genv=HVD_STALL_CHECK_TIME_SECONDS={}"},
    {"--stall-check-shutdown-time-seconds", kHorovodrun, alias, 1, "--genv=HVD_STALL_SHUTDOWN_TIME_SECONDS={}"},
    {"--mpi-threads-disable --no-mpi-threads-disable", kHorovodrun, no_effect, 0,
     "hvd uses the thread level that MPI provides"},
    {"--mpi-args --binding-args", kHorovodrun, refused, 1, "give mpirun's options to hvdrun directly"},
    {"--tcp", kHorovodrun, alias, 0, "--genv=NCCL_IB_DISABLE=1"},
    {"--num-nccl-streams", kHorovodrun, no_effect, 1, "hvd manages its CUDA streams itself"},
    {"--gloo-timeout-seconds", kHorovodrun, alias, 1, "--genv=HVD_COLLECTIVE_TIMEOUT_SECONDS={}"},
    {"--log-level", kHorovodrun, alias, 1, "--genv=HVD_LOG_LEVEL={}"},
    {"--log-with-timestamp --log-without-timestamp --log-hide-timestamp --no-log-hide-timestamp", kHorovodrun,
     no_effect, 0, "hvd's lines always have the time"},
    {"-profile", kHydra, no_effect, 0, "--verbose says where the time goes until a job runs"},

    // --- About the launcher ---
    {"-h --help", kAll, same, 0, ""},
    {"--version", kHorovodrun | kMpirun | kHydra, same, 0, ""},
    {"-V", kMpirun, alias, 0, "--version"},
    {"-info", kHydra, alias, 0, "--check-build"},
    {"--check-build", kHorovodrun, same, 0, ""},
    {"-cb", kHorovodrun, alias, 0, "--check-build"},
};

// The name without leading dashes, and with dashes as separators.
std::string key_of(std::string_view name) {
  std::string key(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  std::ranges::replace(key, '_', '-');
  return key;
}

std::string in_bytes(const std::string& mebibytes, std::string_view name) {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  const auto number = parse_number<std::int64_t>(mebibytes);
  if (!number || *number < 0 || *number > kMax) {
    throw InvalidArgument(std::string(name) + " " + mebibytes + ": a number of megabytes");
  }
  return std::to_string(*number << 20);
}

}  // namespace

std::span<const OtherOption> other_options() {
  static const std::vector<OtherOption> all = [] {
    std::vector<OtherOption> each;
    for (const OtherOption& entry : kOptions) {
      for (const auto& name : std::views::split(entry.name, ' ')) {
        each.push_back(entry);
        each.back().name = std::string_view(name.begin(), name.end());
      }
    }
    return each;
  }();
  return all;
}

const OtherOption* find_other_option(std::string_view name) {
  const std::string key = key_of(name);
  for (const OtherOption& option : other_options()) {
    if (key_of(option.name) == key) return &option;
  }
  return nullptr;
}

std::vector<std::string> expand_alias(const OtherOption& option, const std::string& value) {
  std::vector<std::string> words;
  for (const auto& part : std::views::split(option.text, ' ')) {
    std::string word(part.begin(), part.end());
    if (const auto place = word.find("{}"); place != std::string::npos) word.replace(place, 2, value);
    if (const auto place = word.find("{MiB}"); place != std::string::npos) {
      word.replace(place, 5, in_bytes(value, option.name));
    }
    words.push_back(std::move(word));
  }
  return words;
}

bool is_known_to(unsigned launchers, std::string_view name) {
  const std::string key = key_of(name);
  return std::ranges::any_of(other_options(), [&](const OtherOption& option) {
    return (option.known_to & launchers) != 0 && option.treatment != different && key_of(option.name) == key;
  });
}

}  // namespace hvd::launcher
