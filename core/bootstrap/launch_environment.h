// Determines which launcher has started this process, and as which rank of how many, from the variables that launchers
// set. Pure.
//
//   hvdrun             HVD_RANK, HVD_SIZE (or HOROVOD_*), HVD_STORE; in an elastic job HVD_PROCESS, HVD_STORE;
//                      HVD_SERVERS if there are parameter servers, which have HVD_SERVER and no HVD_RANK
//   HVD_RENDEZVOUS     HVD_RANK, HVD_SIZE and HVD_RENDEZVOUS: by hand, or by the manifest of a Kubernetes Job
//   torchrun           RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, with TORCHELASTIC_RUN_ID
//   mpirun (Open MPI)  OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE
//   by hand            as torchrun, with MASTER_ADDR and MASTER_PORT
//   mpiexec (MPICH)    PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS
//   Kubeflow, by hand  TF_CONFIG with a cluster of several (read_tf_config)
//   srun               SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST; PMIx or PMI2 variables, if Slurm was
//                      asked for them
//
// The first that has started several processes counts: mpirun inside a Slurm allocation is mpirun, and torchrun that
// mpirun has started on each host is torchrun. TF_CONFIG starts nothing, so the launcher of the processes takes
// precedence. But not srun: under it a TF_CONFIG for each process is always intentional, and unlike srun it
// distinguishes an evaluator from a worker. torchrun's variables that hvd itself has set (HVD_TORCH_VARIABLES) are
// ignored.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/net/socket.h"

namespace hvd {

// The binary interfaces of MPI libraries: Open MPI's, MPICH's (which Intel MPI, MVAPICH and others share), and that of
// the MPI 5 standard.
enum class MpiKind { open_mpi, mpich, standard };

enum class Launcher { none, hvdrun, open_mpi, mpich, slurm, tf_config, torchrun, rendezvous };

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0;  // -1: this process is a parameter server
  int size = 1;
  int local_size = 0;  // ranks on this host, according to the launcher; 0: unknown
  // In an elastic job of hvdrun: this process's number. Its rank and size are those of each epoch.
  std::optional<int> process{};

  // Parameter servers of hvdrun and TF_CONFIG, which are processes of the job but not among its `size` ranks.
  int servers = 0;
  int server = -1;  // this process's number among them; -1: it is a rank

  // The MPI whose library finds its ranks by what the launcher provides; none: it provides nothing to MPI.
  std::optional<MpiKind> mpi{};

  // Of srun, TF_CONFIG and HVD_RENDEZVOUS: where rank 0 is to host the job's store. The same on all ranks.
  Address store{};
};

// The store's address in the process's nth job, counted from 1: the last one's port may not be free yet.
Address store_address(const Launch& launch, int epoch);

// By Launcher: a stable identifier for programs, and the name for people.
struct LauncherNames {
  const char* id;
  const char* name;
};
inline constexpr LauncherNames kLaunchers[] = {{"none", "nobody"},
                                               {"hvdrun", "hvdrun"},
                                               {"open_mpi", "mpirun (Open MPI)"},
                                               {"mpich", "mpiexec (MPICH)"},
                                               {"slurm", "srun"},
                                               {"tf_config", "TF_CONFIG"},
                                               {"torchrun", "torchrun"},
                                               {"rendezvous", "HVD_RENDEZVOUS"}};
inline const char* launcher_name(Launcher launcher) { return kLaunchers[static_cast<std::size_t>(launcher)].name; }

// A single process is started without a launcher (Launcher::none, rank 0 of 1), unless HVD_SIZE or TF_CONFIG wants it
// to be alone. Throws InvalidArgument if a launcher's variables are inconsistent.
Launch read_launch(const Environment& environment);

inline constexpr std::size_t kMaxNodes = 1'000'000;

// Expands Slurm's "node[08-10,12],login"; at least one node. Throws InvalidArgument, also for more than kMaxNodes.
std::vector<std::string> expand_nodelist(std::string_view text);

// The parts between the commas outside of brackets, empty ones included.
std::vector<std::string_view> split_outside_brackets(std::string_view text);

// Reads the cluster that TF_CONFIG describes to TensorFlow's MultiWorkerMirroredStrategy, as a job. Pure.
//
//   {"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
//    "task": {"type": "worker", "index": 0}}
//
// The chief, if there is one, is rank 0, and the workers follow in their order. Tasks of type "ps" are the job's
// parameter servers. An evaluator works alone, outside the job.
//
// Launcher::none if there is no cluster, or it has only one worker and no server. Throws InvalidArgument.
Launch read_tf_config(const std::string& text);

// Children of a rank inherit the variables that make a process a rank.

// Whether `pid`, in this process's pid namespace, is an ancestor of this process, through processes that still live.
bool is_started_by(int pid);

// The ancestor of this process, through processes that still live, that is in a job as the rank that this process's
// variables describe. Called before this process joins: MPI and torchrun's store do not tolerate a rank that comes
// twice. Empty if there is none that this process may inspect. `launcher` is that of `own`, this process's environment.
std::optional<int> rank_that_started_this(Launcher launcher, const Environment& own);

// Whether two environments are of the same rank of the same job of that launcher. Pure.
bool is_same_rank(Launcher launcher, const Environment& one, const Environment& other);

// What the user can do about it.
inline constexpr const char* kAdviceForChildren =
    "let the rank itself call hvd, or start this process with HVD_SIZE=1, and without HVD_RANK and HOROVOD_RANK, "
    "to let it work alone";

}  // namespace hvd
