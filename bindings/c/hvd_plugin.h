/* hvd_plugin.h: a backend for hvd as a shared library of its own, in C.
 *
 * A plugin moves the data of collectives; what ranks agree on, and when, stays with hvd. It is a shared library that
 * exports one function, hvd_plugin_get(), which returns a table of functions. Nothing of hvd is linked: whatever a
 * plugin needs from it comes with hvd_plugin_host. HVD_PLUGINS names plugins to be loaded; examples/plugin is one.
 *
 * Conventions. A function that can fail returns an hvd_status, and last_error() then gives the text for the calling
 * thread. No exception leaves a plugin. Structures begin with their size; fields are only ever added at the end, so a
 * size says which ones are there. Functions of the same group are called by one thread at a time, not always the same.
 */
#ifndef HVD_PLUGIN_H
#define HVD_PLUGIN_H

#include "hvd.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_PLUGIN_ABI_VERSION 1

/* One tensor of a collective. Input and output may be the same memory, and never overlap otherwise. */
typedef struct hvd_plugin_piece {
  const void* input; /* NULL though there are elements: a joined rank, which contributes what changes no result */
  void* output;      /* NULL: the result is not wanted here */
  int64_t elements;  /* of the input; the same on every rank for allreduce, broadcast and reducescatter */
} hvd_plugin_piece;

/* A collective on a list of tensors. Every field but the pointers is the same on every rank of the group. */
typedef struct hvd_plugin_call {
  size_t struct_size;
  int32_t collective; /* hvd_collective */
  int32_t dtype;      /* hvd_dtype */
  int32_t reduce_op;  /* hvd_reduce_op, never HVD_AVERAGE: that is a sum with a postscale */
  int32_t root;       /* broadcast: a rank of the group */
  double prescale;    /* inputs are multiplied by this before, */
  double postscale;   /* and the result by this after the reduction */
  int32_t device;     /* HVD_CPU: tensors on accelerators do not come to plugins */
  int32_t reserved;
  uint64_t sequence; /* number of this collective in the group */
  size_t count;      /* pieces */
  const hvd_plugin_piece* pieces;
  /* Elements by rank of the group, rows of hvd_plugin_group.size numbers; NULL where not listed.
   *   allgather      a row a piece: what each rank contributes; the output holds them in rank order
   *   reducescatter  a row a piece: what each rank receives, in rank order out of the input
   *   alltoall       a row a source: what it sends to each rank; the one piece's output holds them in source order */
  const int64_t* counts;
} hvd_plugin_call;

/* What hvd does for a plugin. Stays valid until the group is closed. Any thread of the plugin's. */
typedef struct hvd_plugin_host {
  size_t struct_size;
  void* context;
  /* level: 1 debug, 2 info, 3 warning, 4 error */
  void (*log)(void* context, int32_t level, const char* text);
  /* 1: the job has been given up, and whoever waits shall return HVD_ABORTED soon. */
  int (*is_stopped)(void* context);
  /* Has the best of the other backends perform the call; all ranks of the group have to. Inside run() only. */
  hvd_status (*hand_on)(void* context, const hvd_plugin_call* call);
} hvd_plugin_host;

/* Ranks that do collectives among themselves: all of the job's, or those of a process set. They are numbered from 0. */
typedef struct hvd_plugin_group {
  size_t struct_size;
  int32_t rank, size;
  const int32_t* job_ranks; /* by rank of the group: its number in the job */
} hvd_plugin_group;

/* For plugins whose library is also a launcher's, as MPI: the ranks find each other through it. */
typedef struct hvd_plugin_launch {
  size_t struct_size;
  /* Joins the job; may be called again, also after it has ended in hvd's sense. */
  hvd_status (*join)(int32_t* rank, int32_t* size);
  /* Rank 0's bytes to all ranks of the job, all of which call. */
  hvd_status (*broadcast)(void* bytes, size_t size);
} hvd_plugin_launch;

/* For plugins that can carry messages between ranks of a group, for hvd's own algorithms to use. Between two ranks
 * messages are matched in the order in which they are posted on either side. */
typedef struct hvd_plugin_transport {
  size_t struct_size;
  /* Memory belongs to the plugin until the operation is complete. `label` is the same on both sides; if they differ,
   * or the lengths do, the receiver's operation fails with HVD_INTERNAL. Operations complete in any order. */
  hvd_status (*post_send)(void* group, int32_t peer, uint64_t label, const void* bytes, size_t size, void** operation);
  hvd_status (*post_receive)(void* group, int32_t peer, uint64_t label, void* bytes, size_t size, void** operation);
  /* *done: whether it is complete; the operation is gone then, also if it has failed. Never waits. */
  hvd_status (*test)(void* group, void* operation, int* done);
} hvd_plugin_transport;

typedef struct hvd_plugin {
  size_t struct_size;
  uint32_t abi_version;    /* HVD_PLUGIN_ABI_VERSION */
  const char* name;        /* of the backend, as hvd shows it */
  const char* description; /* library and version, for people */
  const char* (*last_error)(void);
  /* Whether it works here, on this rank alone. */
  hvd_status (*self_test)(void);

  /* All ranks of the group call together. The host stays valid until the group is closed. */
  hvd_status (*open_group)(const hvd_plugin_host* host, const hvd_plugin_group* group, void** opened);
  /* How well this backend suits the call; 0: it cannot do it. Reads only what is the same on every rank. hvd's own
   * backends have scores from 1 to 100. */
  int32_t (*score)(void* group, const hvd_plugin_call* call);
  /* Performs it: returns when outputs are complete. After a failure the job ends, and the group is only closed. */
  hvd_status (*run)(void* group, const hvd_plugin_call* call);
  /* Each rank by itself. `failed`: not all of what was begun has ended. */
  void (*close_group)(void* group, int failed);

  const hvd_plugin_launch* launch;       /* may be NULL */
  const hvd_plugin_transport* transport; /* may be NULL */
} hvd_plugin;

/* The one function that a plugin exports. NULL: it does not know this version of the table. What it returns is valid
 * for ever. */
typedef const hvd_plugin* (*hvd_plugin_get_function)(uint32_t abi_version);
#define HVD_PLUGIN_GET "hvd_plugin_get"

#ifdef __cplusplus
}
#endif

#endif /* HVD_PLUGIN_H */
