/* hvd_ps.h: parameter servers: tables of rows that a job's workers pull from and push gradients to.
 *
 * Workers are the ranks of the job. Servers are further processes of it (hvdrun --servers 2, tasks of type "ps" in
 * TF_CONFIG), which call hvd_ps_serve(); in a job without such processes every worker serves a shard as well. Workers
 * need not call anything together: each goes on as fast as its tables' consistency allows, and collectives are
 * independent of all of this.
 *
 * The conventions are those of hvd.h: status codes, hvd_last_error(), any thread, structures that begin with their
 * size. In a callback of hvd_work_on_done(), functions that would block return HVD_INVALID_ARGUMENT: those that connect
 * or serve, waits with a timeout other than 0 for what is not done, and calls without `work`.
 */
#ifndef HVD_PS_H
#define HVD_PS_H

#include "hvd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a push of a gradient changes a row, element by element in float32. */
typedef enum hvd_ps_rule {
  HVD_PS_ASSIGN = 0,  /* replaces the row by the gradient */
  HVD_PS_ADD = 1,     /* adds the gradient to the row */
  HVD_PS_SGD = 2,     /* bitwise equal to torch.optim.SGD; momentum, Nesterov momentum, weight decay */
  HVD_PS_ADAGRAD = 3, /* as torch.optim.Adagrad */
  HVD_PS_ADAM = 4,    /* as torch.optim.Adam; steps are counted for each row */
  HVD_PS_FTRL = 5,    /* FTRL-Proximal (McMahan et al., KDD 2013) */
  HVD_PS_CUSTOM = 6   /* the program's own function: hvd_ps_register_update() */
} hvd_ps_rule;

typedef enum hvd_ps_initializer {
  HVD_PS_CONSTANT = 0, /* a */
  HVD_PS_UNIFORM = 1,  /* from a to b */
  HVD_PS_NORMAL = 2    /* mean a, standard deviation b */
} hvd_ps_initializer;

typedef enum hvd_ps_consistency {
  HVD_PS_ASYNCHRONOUS = 0, /* pushes take effect when they arrive; pulls return the current rows */
  HVD_PS_BOUNDED = 1,      /* the same, but a pull waits until no worker is more than `bound` clocks behind */
  HVD_PS_SYNCHRONOUS = 2 /* a pull waits until all workers have reached its clock; the pushes of a clock are added up in
                            the order of ranks, and take effect together: the same bits in every run */
} hvd_ps_consistency;

/* How pushes change a table's rows. Fields that a rule does not use are ignored. */
typedef struct hvd_ps_optimizer {
  size_t struct_size;
  int32_t rule;     /* hvd_ps_rule */
  int32_t row_wise; /* Adagrad, Adam: 1: a single second moment for each row, the mean over its values */
  int32_t nesterov; /* SGD */
  float learning_rate, momentum, weight_decay, beta1, beta2, epsilon;
  float accumulator, beta, l1, l2; /* Adagrad, FTRL: initial sum of squares; FTRL */
  const char* update;              /* HVD_PS_CUSTOM: the name under which servers have registered it; else NULL */
  int32_t state;                   /* HVD_PS_CUSTOM: values of state for each row */
  float compensation; /* of a table that is dense and not synchronous, with a learning rate: factor c of delay
                         compensation. A gradient g is replaced by g + c g g (row - row as last pulled by this worker);
                         servers keep a copy of the table for each worker. 0: none */
} hvd_ps_optimizer;

#define HVD_PS_OPTIMIZER_INIT                                                                                          \
  {                                                                                                                    \
    sizeof(struct hvd_ps_optimizer), HVD_PS_SGD, 0, 0, 0.01f, 0.0f, 0.0f, 0.9f, 0.999f, 1e-8f, 0.0f, 1.0f, 0.0f, 0.0f, \
        NULL, 0, 0.0f                                                                                                  \
  }

/* A table; all workers pass the same. */
typedef struct hvd_ps_table {
  size_t struct_size;
  const char* name;
  int32_t dense; /* 1: rows 0 to `rows` - 1 exist; 0: rows have any 64-bit keys and are created by their first push */
  int32_t consistency; /* hvd_ps_consistency */
  int64_t rows;        /* sparse: the most that each server keeps: the least recently used are evicted; 0: no limit */
  int32_t width;       /* float32 values in a row, at most 65536 */
  int32_t bound;       /* bounded: in clocks */
  int32_t average;     /* synchronous: 1: divide the sums by the number of workers */
  const hvd_ps_optimizer* optimizer; /* NULL: HVD_PS_OPTIMIZER_INIT */
  int32_t initializer;               /* hvd_ps_initializer: values of a row before its first push */
  float a, b;                        /* of the initializer */
  int32_t filled;  /* dense: 1: pulls and pushes wait until hvd_ps_fill() has set the initial values */
  uint64_t seed;   /* initial values are a function of seed, key and column */
  int32_t max_age; /* sparse: rows unused for this many clocks of the slowest worker are evicted; 0: never */
  int32_t cache;   /* of this worker alone, sparse, not synchronous: a pull may return rows that an earlier pull
                      received at most this many clocks of this worker ago, with its own pushes applied; 0: no cache */
} hvd_ps_table;

#define HVD_PS_TABLE_INIT                                                                                              \
  {                                                                                                                    \
    sizeof(struct hvd_ps_table), NULL, 0, HVD_PS_ASYNCHRONOUS, 0, 1, 0, 0, NULL, HVD_PS_CONSTANT, 0.0f, 0.0f, 0, 0, 0, \
        0                                                                                                              \
  }

typedef struct hvd_ps hvd_ps;           /* a worker's connections with all servers */
typedef struct hvd_ps_work hvd_ps_work; /* a pull or push in progress */

/* The program's own update: changes `count` rows, of `columns` values each, by a gradient for each, and the rows' state
 * of `state_columns` values, which are 0 in a new row. All three arrays are row-major and belong to the caller. Called
 * by one thread of a server at a time. Returns 0; any other value refuses the push, and then nothing has changed. */
typedef int (*hvd_ps_update)(float* rows, float* state, const float* gradients, size_t count, size_t columns,
                             size_t state_columns, float learning_rate, void* context);

/* Registers an update function, by name, for tables whose rule is HVD_PS_CUSTOM. Call it in every process that serves,
 * before hvd_ps_serve() or hvd_ps_connect(). Replaces an earlier one of the same name for tables that are opened
 * afterwards. */
HVD_API hvd_status hvd_ps_register_update(const char* name, hvd_ps_update update, void* context);

/* Serves until all workers have left, or SIGTERM. In a process that is one of its job's servers, instead of hvd_init();
 * HVD_INVALID_ARGUMENT in others. HVD_SERVER_MEMORY limits its rows; with HVD_SERVER_SNAPSHOT it writes snapshots, and
 * starts again from the last one. */
HVD_API hvd_status hvd_ps_serve(void);

/* Connects this worker with all servers, after hvd_init(). Waits for servers that are still starting; HVD_PEER_LOST if
 * one does not appear within HVD_START_TIMEOUT. HVD_INVALID_ARGUMENT while an earlier connection of this process is
 * open: servers would treat the second as the successor of the first. */
HVD_API hvd_status hvd_ps_connect(hvd_ps** ps);

/* Waits for calls in progress, tells the servers that this worker has finished, and, where workers serve, waits until
 * all workers have finished, because the others still need this one. After HVD_TIMEOUT only hvd_ps_leave(),
 * hvd_ps_close() or hvd_ps_abandon() may follow. */
HVD_API hvd_status hvd_ps_leave(hvd_ps* ps, int64_t timeout_us);

/* hvd_ps_leave() without a time limit, unless it is done, and closes the connections. `ps` is freed even on failure,
 * unless the call is refused in a callback or a forked child. */
HVD_API hvd_status hvd_ps_close(hvd_ps* ps);

/* Frees `ps` without notifying the servers, which then treat this worker as lost. Has no effect in a forked
 * child. */
HVD_API void hvd_ps_abandon(hvd_ps* ps);

/* Opens a table, or finds it if it is open, and stores its number in this process. HVD_MISMATCH: another worker has
 * opened it with other arguments. */
HVD_API hvd_status hvd_ps_open(hvd_ps* ps, const hvd_ps_table* table, int32_t* number);

/* Stores the number of servers, and whether they are separate processes (1) or the workers themselves (0). */
HVD_API hvd_status hvd_ps_servers(hvd_ps* ps, int32_t* servers, int32_t* are_others);

/* Stores how many rows this worker's pulls have found in the table's cache, and how many they requested from servers.
 * Zero if the table has no cache. */
HVD_API hvd_status hvd_ps_cache_counts(hvd_ps* ps, int32_t table, uint64_t* found, uint64_t* missing);

/* Pull copies rows to `rows`, push applies `gradients` to them, push_pull does both in one round trip. There are
 * `count` keys, and `width` values for each, in the order of the keys; the gradients of a repeated key are summed. keys
 * NULL: the whole of a dense table, with `count` values in memory (the last row may have more values; those are zero).
 *
 * With `work`, starts the call and returns; the memory, keys included, must stay valid until the work is done. With
 * work NULL, returns when it is done. A worker's calls take effect on a server in the order in which they were made. A
 * call is done when all servers concerned have applied and answered it; if a connection breaks, the call is sent again,
 * and applied once. HVD_INVALID_ARGUMENT also if a server's memory is full. */
HVD_API hvd_status hvd_ps_pull(hvd_ps* ps, int32_t table, const uint64_t* keys, size_t count, float* rows,
                               hvd_ps_work** work);
HVD_API hvd_status hvd_ps_push(hvd_ps* ps, int32_t table, const uint64_t* keys, size_t count, const float* gradients,
                               hvd_ps_work** work);
HVD_API hvd_status hvd_ps_push_pull(hvd_ps* ps, int32_t table, const uint64_t* keys, size_t count,
                                    const float* gradients, float* rows, hvd_ps_work** work);

/* Initialises a whole dense table with these values. Rows that have values keep them, so that workers that join later
 * may call it, too. `work` as above. */
HVD_API hvd_status hvd_ps_fill(hvd_ps* ps, int32_t table, const float* values, size_t count, hvd_ps_work** work);

/* Like hvd_work_wait(). */
HVD_API hvd_status hvd_ps_work_wait(hvd_ps_work* work, int64_t timeout_us);
HVD_API int hvd_ps_work_poll(hvd_ps_work* work);
/* Returns, for a work that is done, how many updates the table had received, on the server with the fewest; 0 if no
 * server was asked. */
HVD_API uint64_t hvd_ps_work_version(hvd_ps_work* work);
/* Releases the work. A pending call continues; hvd_ps_flush() returns its error. Has no effect in a forked child. */
HVD_API void hvd_ps_work_free(hvd_ps_work* work);

/* Waits for all calls of this worker. Returns the first error of calls whose work was freed. */
HVD_API hvd_status hvd_ps_flush(hvd_ps* ps, int64_t timeout_us);

/* Advances this worker's clock, usually after each step; returns at once. */
HVD_API hvd_status hvd_ps_clock(hvd_ps* ps);
/* Stores this worker's clock, and the lowest clock of all workers according to the servers' last answers. */
HVD_API hvd_status hvd_ps_get_clock(hvd_ps* ps, uint32_t* own, uint32_t* lowest);

/* The following functions ask all servers. `work` as for hvd_ps_pull().
 *
 * Sets the learning rate of pushes that arrive from now on; one worker calls it for all. */
HVD_API hvd_status hvd_ps_set_learning_rate(hvd_ps* ps, int32_t table, float rate, hvd_ps_work** work);

/* Every server writes its state to a file in this folder, which all servers must be able to reach, and continues to
 * serve meanwhile; done when all files are complete. One worker calls it for all. */
HVD_API hvd_status hvd_ps_snapshot(hvd_ps* ps, const char* folder, hvd_ps_work** work);
/* Adds the rows and optimizer states of such a folder, written by any number of servers. Call it before training. */
HVD_API hvd_status hvd_ps_restore(hvd_ps* ps, const char* folder, hvd_ps_work** work);

/* Requests statistics; hvd_ps_work_stats() returns them once the work is done. `work` must not be NULL. */
HVD_API hvd_status hvd_ps_stats(hvd_ps* ps, hvd_ps_work** work);
/* Returns lines "<server> <table> <what> <number>"; table "-" is the whole server. Valid until the calling thread's
 * next call of this function. */
HVD_API const char* hvd_ps_work_stats(hvd_ps_work* work);

#ifdef __cplusplus
}
#endif

#endif /* HVD_PS_H */
