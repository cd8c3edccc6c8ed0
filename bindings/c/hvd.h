/* hvd: collective communication for training, C interface.
 *
 * This header is the one door into libhvd.so: the C++ header hvd.hpp and the Python package stand on it, so that there
 * is exactly one runtime in a process, whichever frameworks share it.
 *
 * Conventions. Every function that can fail returns an hvd_status; hvd_last_error() then gives the text for the
 * calling thread. No exception leaves the library. Functions may be called from any thread. Structures begin with
 * their size, so that the library can tell an older caller from a newer one: use the HVD_*_INIT initialisers.
 * "All ranks must call" means: each rank of the process set, with the same name and matching arguments, in any order.
 */
#ifndef HVD_H
#define HVD_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_ABI_VERSION 2

/* How a call or an operation ended. */
typedef enum hvd_status {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1, /* the call is wrong by itself; the runtime stays usable */
  HVD_MISMATCH = 2,         /* ranks disagree about an operation; every rank of the set gets it, stays usable */
  HVD_ABORTED = 3,          /* the job was given up */
  HVD_PEER_LOST = 4,        /* a process died or became unreachable; the message names rank and host */
  HVD_TIMEOUT = 5,          /* a deadline passed */
  HVD_NOT_INITIALIZED = 6,  /* call hvd_init() first */
  HVD_SHUT_DOWN = 7,        /* this rank or another one has shut the runtime down */
  HVD_UNSUPPORTED = 8,      /* no backend can do this */
  HVD_INTERNAL = 9          /* a defect of hvd, or a peer that broke the protocol */
} hvd_status;

typedef enum hvd_dtype {
  HVD_UINT8 = 0,
  HVD_INT8 = 1,
  HVD_INT16 = 2,
  HVD_INT32 = 3,
  HVD_INT64 = 4,
  HVD_FLOAT16 = 5,
  HVD_BFLOAT16 = 6,
  HVD_FLOAT32 = 7,
  HVD_FLOAT64 = 8,
  HVD_BOOL = 9,    /* one byte, 0 or 1; min and max only */
  HVD_UINT16 = 10, /* this and the following: allgather, broadcast, alltoall; no reductions */
  HVD_UINT32 = 11,
  HVD_UINT64 = 12
} hvd_dtype;

typedef enum hvd_collective {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1, /* first dimensions may differ between ranks */
  HVD_BROADCAST = 2,
  HVD_ALLTOALL = 3,
  HVD_REDUCESCATTER = 4, /* rows that do not divide evenly go to the first ranks */
  HVD_BARRIER = 5,
  HVD_JOIN = 6 /* "I have no more data": until all have joined, the others go on without this rank; docs/errors.md */
} hvd_collective;

typedef enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2, /* adaptive sum: allreduce of floating-point tensors only */
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
} hvd_reduce_op;

enum { HVD_GLOBAL_PROCESS_SET = 0, HVD_CPU = -1 };

/* A contiguous row-major tensor. `data` may be NULL if it has no elements. */
typedef struct hvd_tensor {
  void* data;
  const int64_t* shape; /* `dimensions` values; read during the call only */
  int32_t dimensions;   /* 0 for a scalar */
  int32_t dtype;        /* hvd_dtype */
  int32_t device;       /* HVD_CPU, or the ordinal of a GPU: one for all of a rank's tensors in a process set */
  int32_t reserved;
} hvd_tensor;

/* One operation. Memory behind the tensors must stay valid and untouched until the work is done. */
typedef struct hvd_call {
  size_t struct_size;
  int32_t collective;  /* hvd_collective */
  int32_t process_set; /* HVD_GLOBAL_PROCESS_SET */
  const char* name;    /* same on all ranks; NULL: the next number in this process set */
  int32_t reduce_op;   /* allreduce, reducescatter */
  int32_t root_rank;   /* broadcast: a global rank */
  double prescale;     /* inputs are multiplied by this before, */
  double postscale;    /* the result by this after the reduction: in float32 for float32 and the 16-bit floats, else in
                          double, integers being truncated. An average is a sum whose postscale is divided by its ranks */
  size_t count;        /* tensors; more than one is a group: it becomes ready as one. barrier and join: 0 */
  const hvd_tensor* inputs;
  const hvd_tensor* outputs; /* allreduce, broadcast: as the inputs, may be the same memory. reducescatter: this
                                rank's rows, or NULL. allgather, alltoall: NULL. NULL: see hvd_work_output() */
  const int64_t* splits;     /* alltoall: rows for each rank of the set; NULL: equal parts */
  size_t splits_count;
  int32_t priority; /* of operations that are ready on all ranks, those with the highest go first; 0 as a rule */
  void* stream;     /* GPU tensors: the operation begins after what is in this stream (a CUstream or cudaStream_t) by
                       now. NULL: the device's default stream */
} hvd_call;

/* hvd_call.stream of callers who cannot name theirs: the operation begins after what is in any stream of the device's
 * primary context by now. Needs a driver of CUDA 12.5 (555) or later, HVD_UNSUPPORTED without, and that no stream of
 * the context is being captured into a graph: HVD_UNSUPPORTED, and the capture is void. */
#ifdef __cplusplus
static inline void* hvd_all_streams() { return reinterpret_cast<void*>(UINTPTR_MAX); } /* NOLINT(*-int-to-ptr) */
#define HVD_ALL_STREAMS hvd_all_streams()
#else
#define HVD_ALL_STREAMS ((void*)UINTPTR_MAX)
#endif

#define HVD_CALL_INIT                                                                                                \
  {                                                                                                                  \
    sizeof(struct hvd_call), HVD_ALLREDUCE, HVD_GLOBAL_PROCESS_SET, NULL, HVD_SUM, 0, 1.0, 1.0, 0, NULL, NULL, NULL, \
        0, 0, NULL                                                                                                   \
  }

/* Where this process stands in the job. */
typedef struct hvd_topology {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_rank, local_size; /* among the ranks of this host */
  int32_t cross_rank, cross_size; /* among the ranks with this local rank, over the hosts */
  int32_t homogeneous;            /* 1 if all hosts have equally many ranks */
} hvd_topology;

#define HVD_TOPOLOGY_INIT \
  { sizeof(struct hvd_topology), 0, 1, 0, 1, 0, 1, 1 }

typedef struct hvd_work hvd_work; /* an operation under way */

HVD_API int hvd_abi_version(void);
HVD_API const char* hvd_version(void); /* "0.1.0" */
HVD_API const char* hvd_status_name(hvd_status status);

/* Text of the last failure on the calling thread; valid until its next hvd call. Never NULL. */
HVD_API const char* hvd_last_error(void);

/* Joins the job that the environment describes: that of hvdrun, mpirun, mpiexec, srun or TF_CONFIG; none: one rank
 * alone. All processes of the job must call; returns when all have. Does nothing if initialised already; after
 * hvd_shutdown() it starts anew. */
HVD_API hvd_status hvd_init(void);

/* How processes that know their ranks find each other: somebody carries rank 0's first word to the others. */
typedef struct hvd_rendezvous {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_size; /* ranks on this host; 0: not known */
  int32_t reserved;
  void* context;
  /* Called once by hvd_init_with(), on all ranks: fills `bytes` with those of rank 0. They hold the job's secret. */
  hvd_status (*broadcast)(void* context, void* bytes, size_t size);
} hvd_rendezvous;

#define HVD_RENDEZVOUS_INIT \
  { sizeof(struct hvd_rendezvous), 0, 1, 0, 0, NULL, NULL }

/* Who has started this process, as the environment says: what hvd_init() would go by. */
typedef struct hvd_launch {
  size_t struct_size;
  const char* launcher; /* none, hvdrun, open_mpi, mpich, slurm, tf_config, torchrun */
  int32_t rank, size;
  int32_t local_size; /* 0: not known */
  int32_t reserved;
} hvd_launch;

#define HVD_LAUNCH_INIT \
  { sizeof(struct hvd_launch), "none", 0, 1, 0, 0 }

HVD_API hvd_status hvd_get_launch(hvd_launch* launch);

/* As hvd_init(), in a job that the caller knows of, whatever the environment says. */
HVD_API hvd_status hvd_init_with(const hvd_rendezvous* rendezvous);

/* Leaves the job: the other ranks' pending and later operations end with HVD_SHUT_DOWN. Returns when other threads'
 * calls have returned, and this process's threads, memory and connections are gone. Does nothing if not initialised. */
HVD_API hvd_status hvd_shutdown(void);

/* Ends the job as a failure of this rank: the other ranks' pending and later operations, and this rank's, end with
 * HVD_ABORTED and "rank 3 on host2 <cause>"; `cause` follows the rank's name: "raised ValueError: bad data". Launchers
 * and the other ranks then name this rank as the one that failed first. Does nothing if not initialised, or if the job
 * has ended by another rank's failure. To be followed by hvd_shutdown(), or the process's end. An exception of C++ that
 * nobody catches does it by itself. */
HVD_API hvd_status hvd_fail(const char* cause);

HVD_API int hvd_is_initialized(void);
HVD_API hvd_status hvd_get_topology(hvd_topology* topology);

/* Process sets: some of the job's ranks, which do operations among themselves (hvd_call.process_set). Sets work at the
 * same time. All ranks of the job must call the two functions below in the same order, members or not; they return when
 * all have.
 *
 * A new set of these ranks, in any order; its number, the same on every rank. HVD_INVALID_ARGUMENT: a rank that does
 * not exist, or there is such a set; HVD_MISMATCH: ranks asked for different changes. Nothing has changed then. */
HVD_API hvd_status hvd_add_process_set(const int32_t* ranks, size_t count, int32_t* process_set);

/* The number may be given out again. HVD_INVALID_ARGUMENT: no such set, that of all ranks, or operations of this rank
 * are under way in it. */
HVD_API hvd_status hvd_remove_process_set(int32_t process_set);

/* The ranks of a set, ascending; also on ranks that are not in it. Valid until the calling thread's next call of this
 * function. */
HVD_API hvd_status hvd_get_process_set(int32_t process_set, const int32_t** ranks, size_t* count);

/* Starts an operation and returns at once. HVD_INVALID_ARGUMENT: nothing was started. A name stays taken until its
 * operation has ended, whether or not anybody has waited for that. */
HVD_API hvd_status hvd_submit(const hvd_call* call, hvd_work** work);

/* The two in one: starts an operation and waits for it, on the calling thread where nothing else is under way, so that
 * nothing is handed over. As hvd_submit() if the call is wrong, else as hvd_work_wait(). `work` may be NULL if
 * timeout_us is negative and the call has outputs or needs none; otherwise it is to be freed if it is not NULL
 * afterwards. The operation may be under way for a moment longer than timeout_us before this returns; as long as
 * HVD_COLLECTIVE_TIMEOUT_SECONDS, or HVD_STALL_SHUTDOWN_TIME_SECONDS where that is set, if another rank is stopped in
 * the middle of it. */
HVD_API hvd_status hvd_run(const hvd_call* call, int64_t timeout_us, hvd_work** work);

/* A message from one rank of the job to another: `bytes` bytes, of any meaning. Both sides name the other rank, the
 * same channel and tag, and the same size. Messages of a channel and tag between two ranks are received in the order in
 * which they were sent. A channel is any number that the ranks agree on; messages of different channels never meet.
 * Messages and operations of all ranks are not in each other's way. */
typedef struct hvd_message {
  size_t struct_size;
  int32_t peer; /* the other rank, of the job; to receive from any: HVD_ANY_RANK */
  int32_t reserved;
  uint64_t channel;
  int64_t tag;
  void* data; /* in the host's memory, valid until the work is done; untouched meanwhile. A send only reads it */
  size_t bytes;
} hvd_message;

enum { HVD_ANY_RANK = -1 };

#define HVD_MESSAGE_INIT \
  { sizeof(struct hvd_message), HVD_ANY_RANK, 0, 0, 0, NULL, 0 }

/* Starts a send or a receive, and returns at once. HVD_INVALID_ARGUMENT: nothing was started; no such rank, or this
 * one. A send is done when its memory may be used again, with up to 64 KB perhaps before the other rank has begun to
 * receive. A message of another size than the receive's is gone, and the receive ends with HVD_MISMATCH; so does the
 * send if it is still under way. A lost rank ends all of the job, as with hvd_submit(). When another rank has shut
 * down, what has arrived before can still be received. */
HVD_API hvd_status hvd_send(const hvd_message* message, hvd_work** work);
HVD_API hvd_status hvd_receive(const hvd_message* message, hvd_work** work);

/* Of a done receive: the rank of the job that the message came from. */
HVD_API hvd_status hvd_work_source(hvd_work* work, int32_t* rank);

/* 1 if done, well or badly. */
HVD_API int hvd_work_poll(hvd_work* work);

/* Waits at most timeout_us (negative: without end). HVD_TIMEOUT: not done yet, the work goes on. Otherwise how the
 * operation ended. */
HVD_API hvd_status hvd_work_wait(hvd_work* work, int64_t timeout_us);

/* For GPU tensors: returns as soon as the operation is in a stream of the runtime's own, without waiting for the GPU,
 * and has `stream`, one of the tensors' device, go on only when the operation is over. Errors that are known by then
 * are returned; what fails on the GPU later, by hvd_work_wait() or the next operation. For CPU tensors:
 * hvd_work_wait(). */
HVD_API hvd_status hvd_work_wait_on_stream(hvd_work* work, void* stream, int64_t timeout_us);

/* Instead of waiting: has done(context) called once when the operation has ended, well or badly (hvd_work_wait(work, 0)
 * then says how); for GPU tensors when it is in a stream. It is called on a thread of the runtime, on that of
 * another caller's hvd_run(), or on this one if the operation has ended already. It may submit, and call the hvd_work_
 * functions, but must not wait for anything: what would wait, hvd_init() and hvd_shutdown() included, answers it with
 * HVD_INVALID_ARGUMENT. Once for a work, which nobody waits for at the same time. */
HVD_API hvd_status hvd_work_on_done(hvd_work* work, void (*done)(void* context), void* context);

/* Result i of a done work whose call gave no outputs. The memory belongs to the work. */
HVD_API hvd_status hvd_work_output(hvd_work* work, size_t i, hvd_tensor* output);

/* Hands that memory (64-byte aligned; on the GPU, if the input lay there) over to the caller, who gives it back with
 * hvd_free(). */
HVD_API hvd_status hvd_work_take_output(hvd_work* work, size_t i, hvd_tensor* output);

/* Memory for tensors (128-byte aligned, content undefined) in the arena that the ranks of a host share: where all ranks
 * of an allreduce have their tensors there, it needs two passes over the data instead of five. Each rank allocates for
 * itself; no other rank has to call. Without an arena (no other rank on this host, HVD_SHARED_MEMORY=0,
 * HVD_ARENA_LIMIT=0) it is ordinary memory. HVD_INVALID_ARGUMENT: there is no room; the message says how much is in
 * use. Stays valid after hvd_shutdown(), then as ordinary memory; not to be written in a forked child, which shares it.
 */
HVD_API hvd_status hvd_alloc(size_t bytes, void** memory);

/* Gives back what came from hvd_alloc() or hvd_work_take_output(). In a forked child, memory of the arena stays. */
HVD_API void hvd_free(void* memory);

/* How much of its part of the arena this rank has taken, in bytes. */
typedef struct hvd_arena_usage {
  size_t struct_size;
  size_t limit; /* HVD_ARENA_LIMIT; 0: there is no arena */
  size_t used, peak;
} hvd_arena_usage;

#define HVD_ARENA_USAGE_INIT \
  { sizeof(struct hvd_arena_usage), 0, 0, 0 }

HVD_API hvd_status hvd_get_arena_usage(hvd_arena_usage* usage);

/* alltoall: rows received from each rank of the set. */
HVD_API hvd_status hvd_work_received_splits(hvd_work* work, const int64_t** splits, size_t* count);

/* join: the last rank that joined. */
HVD_API hvd_status hvd_work_last_joined(hvd_work* work, int32_t* rank);

/* Gives the handle back; if the operation is still under way it goes on, and its memory must stay valid. */
HVD_API void hvd_work_free(hvd_work* work);

/* Which algorithm serves an allreduce of which size in this job, and why: lines for people, which HVD_LOG_LEVEL=info
 * writes at start, too. HVD_ALGORITHM changes it between hosts. Valid until the calling thread's next call of this
 * function. */
HVD_API hvd_status hvd_get_algorithm_table(const char** text);

/* What has happened so far on this rank since hvd_init(): docs/metrics.md has the names. Counts and seconds grow. The
 * list is valid until the calling thread's next call of this function; names stay as they are, and new ones may come.
 */
typedef struct hvd_metric {
  const char* name;
  double value;
} hvd_metric;

HVD_API hvd_status hvd_get_metrics(const hvd_metric** metrics, size_t* count);

/* On rank 0, writes from now on what its operations do when, into a file for chrome://tracing; on other ranks nothing
 * happens. mark_cycles: a mark for each answer of the coordinator. A file that is there is overwritten; the one that is
 * being written goes on. HVD_INVALID_ARGUMENT: it cannot be written, or another one is being written. */
HVD_API hvd_status hvd_start_timeline(const char* path, int mark_cycles);

/* Returns when all is in the file. Nothing happens if there is none. hvd_shutdown() does it, too. */
HVD_API hvd_status hvd_stop_timeline(void);

/* What GPU tensors would need and what is there: a line each for the CUDA driver and NCCL, "ok: ..." or "missing: ...".
 * Opens both; needs no hvd_init(). Valid until the calling thread's next call of this function. */
HVD_API hvd_status hvd_describe_gpu_libraries(const char** text);

/* Documentation of every HVD_* variable as Markdown: docs/environment.md is this text. */
HVD_API const char* hvd_environment_documentation(void);

#ifdef __cplusplus
}
#endif

#endif /* HVD_H */
