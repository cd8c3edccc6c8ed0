/* hvd.h: the C interface of hvd, collective communication for training.
 *
 * hvd.h and hvd_ps.h are the whole interface of libhvd.so. The C++ header hvd.hpp and the Python package are built on
 * them, so that a process has exactly one runtime, whichever frameworks share it.
 *
 * Conventions. Every function that can fail returns an hvd_status; hvd_last_error() then returns the text for the
 * calling thread. No exception leaves the library. Functions may be called from any thread. Structures begin with
 * their size, by which the library recognises callers compiled against an older header: use the HVD_*_INIT
 * initialisers. "All ranks must call" means: each rank of the process set, with the same name and matching arguments,
 * in any order.
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

/* The result of a call or of an operation. */
typedef enum hvd_status {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1, /* the call is invalid, or an output does not fit; the runtime stays usable */
  HVD_MISMATCH = 2, /* ranks disagree about an operation; returned on every rank of the set; the runtime stays usable */
  HVD_ABORTED = 3,  /* the job was aborted */
  HVD_PEER_LOST = 4,       /* a process died or became unreachable; the message names rank and host */
  HVD_TIMEOUT = 5,         /* a deadline passed */
  HVD_NOT_INITIALIZED = 6, /* call hvd_init() first */
  HVD_SHUT_DOWN = 7,       /* this rank or another rank has shut down the runtime */
  HVD_UNSUPPORTED = 8,     /* no backend can do this */
  HVD_INTERNAL = 9         /* a defect of hvd, a peer that violated the protocol, or no memory */
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
  HVD_UINT16 = 10, /* this and the following: allgather, broadcast and alltoall; no reductions */
  HVD_UINT32 = 11,
  HVD_UINT64 = 12
} hvd_dtype;

typedef enum hvd_collective {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1, /* first dimensions may differ between ranks */
  HVD_BROADCAST = 2,
  HVD_ALLTOALL = 3,
  HVD_REDUCESCATTER = 4, /* if rows do not divide evenly, the first ranks receive one more */
  HVD_BARRIER = 5,
  HVD_JOIN = 6 /* this rank has no more data: the others continue without it until all have joined; docs/errors.md */
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
  int32_t device;       /* HVD_CPU or the ordinal of a GPU: the same for all of a rank's tensors in a process set */
  int32_t reserved;
} hvd_tensor;

/* One operation. The memory of the tensors must stay valid and untouched until the work is done. */
typedef struct hvd_call {
  size_t struct_size;
  int32_t collective;  /* hvd_collective */
  int32_t process_set; /* HVD_GLOBAL_PROCESS_SET */
  const char* name;    /* the same on all ranks; NULL: the next number in this process set */
  int32_t reduce_op;   /* allreduce, reducescatter */
  int32_t root_rank;   /* broadcast: a rank of the job */
  double prescale;     /* factor applied to the inputs before the reduction, */
  double postscale;    /* and to the result after it: in float32 for float32 and the 16-bit floats, otherwise in double;
                          integers are truncated. An average is a sum; its postscale is divided by the rank count */
  size_t count;        /* number of tensors; more than one: a grouped operation. barrier and join: 0 */
  const hvd_tensor* inputs;
  const hvd_tensor* outputs; /* allreduce, broadcast: shaped like the inputs; may be the same memory. Other collectives:
                                must not overlap any input. reducescatter: this rank's rows; allgather: all ranks' rows;
                                alltoall: the rows received. If an allgather or alltoall output has the wrong number of
                                rows, the work ends with HVD_INVALID_ARGUMENT on this rank, and that output is
                                unchanged. NULL (not allreduce, broadcast): see hvd_work_output() */
  const int64_t* splits;     /* alltoall: rows for each rank of the set; NULL: equal parts */
  size_t splits_count;
  int32_t priority; /* operations that are ready on all ranks are performed by descending priority; usually 0 */
  void* stream;     /* GPU tensors: the operation starts after the work that is in this stream (a CUstream or
                       cudaStream_t) at the time of the call. NULL: the device's default stream */
} hvd_call;

/* Value of hvd_call.stream for callers that do not know their stream: the operation starts after the work that is in
 * any stream of the device's primary context at the time of the call. HVD_UNSUPPORTED if the driver is older than
 * CUDA 12.5 (555), or if a stream of the context is being captured into a graph; the capture is then invalidated. */
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

/* The position of this process in the job. */
typedef struct hvd_topology {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_rank, local_size; /* among the ranks of this host */
  int32_t cross_rank, cross_size; /* among the ranks that have this local rank on their hosts */
  int32_t homogeneous;            /* 1 if all hosts have the same number of ranks */
  int32_t local_cpus;             /* CPUs that any rank of this host may run on; 0: not known */
  int32_t reserved;
} hvd_topology;

#define HVD_TOPOLOGY_INIT \
  { sizeof(struct hvd_topology), 0, 1, 0, 1, 0, 1, 1, 0, 0 }

typedef struct hvd_work hvd_work; /* a reference to an operation */

HVD_API int hvd_abi_version(void);
HVD_API const char* hvd_version(void); /* "0.1.0" */
HVD_API const char* hvd_status_name(hvd_status status);

/* Returns the text of the last failure on the calling thread; valid until its next hvd call. Never NULL. */
HVD_API const char* hvd_last_error(void);

/* Joins the job that the environment describes, as set by hvdrun, mpirun, mpiexec or srun, or by TF_CONFIG or
 * HVD_RENDEZVOUS; without any of them this process is rank 0 of 1. Under torchrun, whose store only Python reaches, use
 * hvd_init_with(). All processes of the job must call; returns when all have. Does nothing if initialised already. May
 * be called again after hvd_shutdown(). */
HVD_API hvd_status hvd_init(void);

/* Like hvd_init(), but a newcomer of an elastic job that has begun without it stands by: the other ranks continue while
 * it prepares itself, and are not aware of it. hvd_get_topology() then returns the place that it would have if the next
 * epoch began now: its rank is the last one, and its local rank is its slot on the host, which no other process there
 * has. It joins when it calls hvd_init() or a function that needs the job: such a function calls `joined`, unless that
 * is NULL, once and on the calling thread, before it continues. */
HVD_API hvd_status hvd_init_standby(void (*joined)(void* context), void* context);

/* How processes that know their ranks find each other: the caller's broadcast distributes bytes of rank 0. */
typedef struct hvd_rendezvous {
  size_t struct_size;
  int32_t rank, size;
  int32_t local_size; /* ranks on this host; 0: not known */
  int32_t reserved;
  void* context;
  /* Called once by hvd_init_with() on all ranks: must fill `bytes` with those of rank 0. They contain the job key. */
  hvd_status (*broadcast)(void* context, void* bytes, size_t size);
} hvd_rendezvous;

#define HVD_RENDEZVOUS_INIT \
  { sizeof(struct hvd_rendezvous), 0, 1, 0, 0, NULL, NULL }

/* The launcher of this process according to the environment, as hvd_init() would use it. */
typedef struct hvd_launch {
  size_t struct_size;
  const char* launcher; /* none, hvdrun, open_mpi, mpich, slurm, tf_config, torchrun, rendezvous */
  int32_t rank, size;   /* rank -1: a parameter server, which hvd_init() refuses */
  int32_t local_size;   /* 0: not known */
  int32_t reserved;
} hvd_launch;

#define HVD_LAUNCH_INIT \
  { sizeof(struct hvd_launch), "none", 0, 1, 0, 0 }

HVD_API hvd_status hvd_get_launch(hvd_launch* launch);

/* Like hvd_init(), in a job that the caller describes, regardless of the environment. */
HVD_API hvd_status hvd_init_with(const hvd_rendezvous* rendezvous);

/* Leaves the job: pending and later operations of the other ranks end with HVD_SHUT_DOWN. Waits up to 5 s for the
 * calls of other threads to return, then releases the runtime's threads, memory and connections in this process. Does
 * nothing if not initialised. */
HVD_API hvd_status hvd_shutdown(void);

/* Aborts the job because this rank failed: pending and later operations on all ranks end with HVD_ABORTED and the
 * message "rank 3 on host2 <cause>". `cause` therefore reads, for example, "raised ValueError: bad data". Launchers and
 * the other ranks then report this rank as the one that failed first. Does nothing if not initialised, or if the job
 * was already aborted because of another rank. Call hvd_shutdown() afterwards, or end the process. hvd calls this
 * function for an uncaught C++ exception. */
HVD_API hvd_status hvd_fail(const char* cause);

HVD_API int hvd_is_initialized(void);
HVD_API hvd_status hvd_get_topology(hvd_topology* topology);

/* The epoch that this process is in: the part of an elastic job in which the ranks stay the same. In an elastic job
 * hvd_init() waits for a place in the next epoch; HVD_SHUT_DOWN means that the job has no more place for this process,
 * which should then exit with code 0. When an epoch ends, because a rank has failed or a change was announced, every
 * rank calls hvd_shutdown() and then hvd_init() again. */
typedef struct hvd_epoch {
  size_t struct_size;
  int32_t number;        /* 1, 2, ...; 0: the job is not elastic, or this process stands by */
  int32_t has_newcomers; /* 1: some ranks need the state of the training from others */
  int32_t change;        /* flags, 0: none. The epoch is to be left at the next step boundary: 1, ranks are removed; 2,
                            ranks are added; 4, the job ends early: save what is to be kept, then call
                            hvd_report_preempted() */
  int32_t stands_by;     /* 1: hvd_init_standby() has given this process no place yet */
  int32_t starting;      /* processes that have been started and will join once they arrive, unless they fail */
} hvd_epoch;

#define HVD_EPOCH_INIT \
  { sizeof(struct hvd_epoch), 0, 0, 0, 0, 0 }

/* Asks the launcher for a change at most once every 50 ms, which takes about 50 us. Ranks see a change at different
 * times: one of them must decide for all, for instance by a broadcast. */
HVD_API hvd_status hvd_get_epoch(hvd_epoch* epoch);

/* Reports that this rank has the state of the training; a newcomer has it once it has received it from another rank.
 * All ranks may report it in each epoch: it shows that they have reached each other. Does nothing in a job that is not
 * elastic. */
HVD_API hvd_status hvd_report_synchronized(void);

/* Reports that this process is being preempted: hvd_get_epoch() announces a change on all ranks, the job continues
 * without this process after the next step boundary, and the next hvd_init() of this process returns HVD_SHUT_DOWN.
 * Does nothing in a job that is not elastic. */
HVD_API hvd_status hvd_report_preempted(void);

/* Process sets: subsets of the job's ranks that perform operations among themselves (hvd_call.process_set). Sets
 * operate concurrently. All ranks of the job, members or not, must call the next two functions in the same order; they
 * return when all have.
 *
 * Creates a set of these ranks, given in any order, and stores its number, which is the same on every rank. On failure
 * nothing changes. HVD_INVALID_ARGUMENT: a rank does not exist, or a set of these ranks already does; HVD_MISMATCH:
 * ranks asked for different changes. */
HVD_API hvd_status hvd_add_process_set(const int32_t* ranks, size_t count, int32_t* process_set);

/* Removes a set; its number may be reused. HVD_INVALID_ARGUMENT: there is no such set, it is the set of all ranks, or
 * operations of this rank are pending in it. */
HVD_API hvd_status hvd_remove_process_set(int32_t process_set);

/* Returns the ranks of a set, ascending; may also be called by ranks that are not in it. Valid until the calling
 * thread's next call of this function. */
HVD_API hvd_status hvd_get_process_set(int32_t process_set, const int32_t** ranks, size_t* count);

/* Starts an operation and returns at once. HVD_INVALID_ARGUMENT: nothing was started. The name stays in use until the
 * operation has ended, whether or not the caller waits for it. */
HVD_API hvd_status hvd_submit(const hvd_call* call, hvd_work** work);

/* Starts an operation and waits for it; performs it on the calling thread if no other operation is pending, which saves
 * the handover between threads. Fails like hvd_submit() if the call is invalid, otherwise like hvd_work_wait(). `work`
 * may be NULL if timeout_us is negative and the call has outputs or needs none; otherwise the caller must free it if it
 * is not NULL afterwards. May return later than timeout_us, by about 100 ms if other ranks are late; if another rank is
 * stopped in the middle of the operation, as late as HVD_COLLECTIVE_TIMEOUT_SECONDS, or HVD_STALL_SHUTDOWN_TIME_SECONDS
 * where that is set. An operation without a name starts when the previous one that this function started without a
 * name has ended: if that one does not end in time, the function returns HVD_TIMEOUT, nothing was started, and `*work`
 * is NULL. */
HVD_API hvd_status hvd_run(const hvd_call* call, int64_t timeout_us, hvd_work** work);

/* Like hvd_run() for several operations of one process set, as for the gradients of a step: hands all of them over at
 * once, and returns when all have ended, or after timeout_us, with the first failure among them. Each rank may list
 * them in an order of its own, or start them in another way, but those without a name are numbered in this order. If a
 * call is invalid, none is started. `works` has room for `count` works, which the caller must free unless they are
 * NULL; it may itself be NULL as in hvd_run(). */
HVD_API hvd_status hvd_run_all(const hvd_call* calls, size_t count, int64_t timeout_us, hvd_work** works);

/* Prepared operations: checked once and started many times, as the persistent collectives of MPI.
 *
 * Checks a call of any collective but join, and stores it: name, shapes, factors and the tensors' addresses are the
 * same in each start, and what the call refers to is not read again. Local: nothing is sent, and the name is not taken.
 * Operations without a name are numbered in the order in which they are prepared in this process set: all ranks must
 * prepare them in the same order. The next two functions start the operation; all other hvd_work_ functions apply to it
 * as to a work of hvd_submit(). Its results are those of the last start. hvd_work_free() releases it, whether or not it
 * was started. */
HVD_API hvd_status hvd_prepare(const hvd_call* call, hvd_work** work);

/* Starts a prepared operation and returns at once, as hvd_submit() does. All ranks must start it, in an order that is
 * subject to the same rules as that of other operations; one rank may have prepared it and another submit it under its
 * name. GPU tensors: it starts after the work that is in the call's stream now.
 *
 * HVD_INVALID_ARGUMENT: nothing was started. The previous start has not ended, or another operation has its name now;
 * or the operation is of a job or epoch that this process has left by hvd_shutdown(), or of a process set that was
 * removed, and must be freed and prepared anew. */
HVD_API hvd_status hvd_start(hvd_work* work);

/* Starts a prepared operation and waits for it, as hvd_run() does: on the calling thread if no other operation is
 * pending. Fails like hvd_start(), otherwise like hvd_work_wait(). For up to 112 bytes between ranks of one host,
 * hvd_start() followed by hvd_work_wait() is equally fast. */
HVD_API hvd_status hvd_start_and_wait(hvd_work* work, int64_t timeout_us);

/* A message from one rank of the job to another: `bytes` bytes of any meaning. Both sides name the other rank and use
 * the same channel, tag and size. Messages with the same channel and tag between two ranks are received in the order in
 * which they were sent. A channel is any number that the ranks agree on; a message is never received on another
 * channel. Messages do not interfere with collectives. */
typedef struct hvd_message {
  size_t struct_size;
  int32_t peer; /* the other rank, numbered in the job; HVD_ANY_RANK: receive from any rank */
  int32_t reserved;
  uint64_t channel;
  int64_t tag;
  void* data; /* in host memory; valid and untouched until the work is done. A send only reads it */
  size_t bytes;
} hvd_message;

enum { HVD_ANY_RANK = -1 };

#define HVD_MESSAGE_INIT \
  { sizeof(struct hvd_message), HVD_ANY_RANK, 0, 0, 0, NULL, 0 }

/* Starts a send or a receive and returns at once. HVD_INVALID_ARGUMENT: nothing was started; the peer does not exist or
 * is this rank. A send is done when its memory may be reused; up to 64 KB this may be before the other rank has begun
 * to receive. If the sizes differ, the message is discarded and the receive ends with HVD_MISMATCH; so does the send if
 * it is still pending. A lost rank ends the whole job, as with hvd_submit(). After another rank has shut down, messages
 * that arrived earlier can still be received. */
HVD_API hvd_status hvd_send(const hvd_message* message, hvd_work** work);
HVD_API hvd_status hvd_receive(const hvd_message* message, hvd_work** work);

/* Stores the rank of the job that sent the message of a completed receive. */
HVD_API hvd_status hvd_work_source(hvd_work* work, int32_t* rank);

/* Returns 1 if the operation has ended, successfully or not. */
HVD_API int hvd_work_poll(hvd_work* work);

/* Waits at most timeout_us microseconds (negative: without limit). HVD_TIMEOUT: the operation has not ended and
 * continues. Otherwise returns the operation's result. */
HVD_API hvd_status hvd_work_wait(hvd_work* work, int64_t timeout_us);

/* For GPU tensors: returns once the operation is enqueued in a stream of the runtime, without waiting for the GPU, and
 * makes `stream`, a stream of the tensors' device, wait for it. Returns the errors known by then; hvd_work_wait() or
 * the next operation returns those that occur later on the GPU. For CPU tensors: hvd_work_wait(). */
HVD_API hvd_status hvd_work_wait_on_stream(hvd_work* work, void* stream, int64_t timeout_us);

/* Alternative to waiting: calls done(context) once when the operation has ended, successfully or not
 * (hvd_work_wait(work, 0) then returns its result); for GPU tensors when it is enqueued in a stream. The call happens
 * on a thread of the runtime, on a thread that is in hvd_run(), or on this one if the operation has already ended. It
 * may submit and call the hvd_work_ functions, but must not block: functions that would, including hvd_init() and
 * hvd_shutdown(), return HVD_INVALID_ARGUMENT in it. Once per work, and not while a thread waits for the work. */
HVD_API hvd_status hvd_work_on_done(hvd_work* work, void (*done)(void* context), void* context);

/* Stores result i of a completed work whose call had no outputs. Its data and its shape belong to the work.
 * HVD_INVALID_ARGUMENT: the work has not ended, or has no output i; the error of the work if it has failed. */
HVD_API hvd_status hvd_work_output(hvd_work* work, size_t i, hvd_tensor* output);

/* Like hvd_work_output(), but transfers the data (128-byte aligned; on the GPU if the input was there) to the caller,
 * who releases it with hvd_free(). The shape still belongs to the work: copy it before hvd_work_free(). */
HVD_API hvd_status hvd_work_take_output(hvd_work* work, size_t i, hvd_tensor* output);

/* Allocates memory for tensors (128-byte aligned, uninitialised) in the arena that the ranks of a host share: an
 * allreduce whose tensors are there on all ranks takes two passes over the data instead of five. Local: no other rank
 * has to call. Without an arena (no other rank on this host, HVD_SHARED_MEMORY=0, HVD_ARENA_LIMIT=0) it is ordinary
 * memory. HVD_INVALID_ARGUMENT: the arena is full; the message contains how much is in use. The memory stays valid
 * after hvd_shutdown(), as ordinary memory; a forked child shares it and must not write to it. */
HVD_API hvd_status hvd_alloc(size_t bytes, void** memory);

/* Frees memory from hvd_alloc() or hvd_work_take_output(). Has no effect on arena memory in a forked child. */
HVD_API void hvd_free(void* memory);

/* This rank's part of the arena, in bytes. */
typedef struct hvd_arena_usage {
  size_t struct_size;
  size_t limit; /* HVD_ARENA_LIMIT; 0: there is no arena */
  size_t used, peak;
} hvd_arena_usage;

#define HVD_ARENA_USAGE_INIT \
  { sizeof(struct hvd_arena_usage), 0, 0, 0 }

HVD_API hvd_status hvd_get_arena_usage(hvd_arena_usage* usage);

/* alltoall: the number of rows received from each rank of the set. The array belongs to the work. Fails like
 * hvd_work_output(). */
HVD_API hvd_status hvd_work_received_splits(hvd_work* work, const int64_t** splits, size_t* count);

/* join: the rank that joined last. */
HVD_API hvd_status hvd_work_last_joined(hvd_work* work, int32_t* rank);

/* Releases the work; a pending operation continues, and its memory must stay valid. */
HVD_API void hvd_work_free(hvd_work* work);

/* Returns which algorithm performs an allreduce of which size in this job, and why, as readable lines;
 * HVD_LOG_LEVEL=info also logs them at start. HVD_ALGORITHM overrides the choice, between hosts and, in a job on one
 * host, inside it. Valid until the calling thread's next call of this function. */
HVD_API hvd_status hvd_get_algorithm_table(const char** text);

/* Returns the metrics of this rank since hvd_init(), or of this parameter server while it serves; docs/metrics.md lists
 * the names, and which are present values. Counts and seconds only increase. The list is valid until the calling
 * thread's next call of this function. Names are stable; new ones may be added. */
typedef struct hvd_metric {
  const char* name;
  double value;
} hvd_metric;

HVD_API hvd_status hvd_get_metrics(const hvd_metric** metrics, size_t* count);

/* On rank 0, starts recording this rank's operations in a file for chrome://tracing; does nothing on other ranks.
 * mark_cycles: also record a mark for each response of the coordinator. Overwrites an existing file; does nothing if
 * this file is already being recorded. HVD_INVALID_ARGUMENT: it cannot be written, or another one is being recorded. */
HVD_API hvd_status hvd_start_timeline(const char* path, int mark_cycles);

/* Returns when the recording is complete in the file. Does nothing if there is none. hvd_shutdown() also does this. */
HVD_API hvd_status hvd_stop_timeline(void);

/* Reports whether the libraries that GPU tensors need are present: one line each for the CUDA driver and NCCL,
 * "ok: ..." or "missing: ...". Loads both; needs no hvd_init(). Valid until the calling thread's next call of this
 * function. */
HVD_API hvd_status hvd_describe_gpu_libraries(const char** text);

/* Returns the documentation of every HVD_* variable as Markdown; docs/environment.md is this text. */
HVD_API const char* hvd_environment_documentation(void);

#ifdef __cplusplus
}
#endif

#endif /* HVD_H */
