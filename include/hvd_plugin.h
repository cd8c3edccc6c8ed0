/* hvd_plugin.h: the C interface for backends of hvd in a separate shared library.
 *
 * A plugin moves the data of collectives; negotiation and order stay in hvd. A plugin exports one function,
 * hvd_plugin_get(), which returns a table of functions. It does not link with hvd: hvd_plugin_host contains the
 * functions that it needs from hvd. HVD_PLUGINS names the plugins to load; examples/plugin is one.
 *
 * Conventions. A function that can fail returns an hvd_status; last_error() then returns the text for the calling
 * thread. No exception leaves a plugin. Structures begin with their size; fields are only ever added at the end, so the
 * size tells which ones are present. hvd calls the functions of a group from one thread at a time, not always the same.
 *
 * open_group() and run() may wait for other ranks: hvd calls them on a separate thread, and stops waiting for it when
 * the job's timeout has passed or the job was aborted; the group is then never closed. The functions of
 * hvd_plugin_launch may block the thread that is in hvd_init(). All other functions must not wait for other ranks.
 */
#ifndef HVD_PLUGIN_H
#define HVD_PLUGIN_H

#include "hvd.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_PLUGIN_ABI_VERSION 1

/* One tensor of a collective. Input and output are either the same memory or do not overlap. */
typedef struct hvd_plugin_piece {
  const void* input; /* NULL with elements > 0: a joined rank, which contributes values that change no result */
  void* output;      /* NULL: the result is not needed on this rank */
  int64_t elements;  /* of the input; the same on every rank for allreduce, broadcast and reducescatter */
} hvd_plugin_piece;

/* A collective on a list of tensors. Every field except the pointers is the same on every rank of the group. */
typedef struct hvd_plugin_call {
  size_t struct_size;
  int32_t collective; /* hvd_collective */
  int32_t dtype;      /* hvd_dtype */
  int32_t reduce_op;  /* hvd_reduce_op; never HVD_AVERAGE, which arrives as a sum with a postscale */
  int32_t root;       /* broadcast: a rank of the group */
  double prescale;    /* factor applied to the inputs before the reduction, */
  double postscale;   /* and to the result after it */
  int32_t device;     /* HVD_CPU: plugins do not receive tensors on accelerators */
  int32_t reserved;
  uint64_t sequence; /* number of this collective in the group */
  size_t count;      /* number of pieces */
  const hvd_plugin_piece* pieces;
  /* Element counts by rank of the group, in rows of hvd_plugin_group.size numbers; NULL for collectives not listed.
   *   allgather      a row per piece: what each rank contributes; the output holds them in rank order
   *   reducescatter  a row per piece: what each rank receives, in rank order from the input
   *   alltoall       a row per source: what it sends to each rank; the one piece's output holds them in source order */
  const int64_t* counts;
} hvd_plugin_call;

/* The functions of hvd that a plugin may call, from any thread of the plugin. Valid until the group is closed. */
typedef struct hvd_plugin_host {
  size_t struct_size;
  void* context;
  /* level: 1 debug, 2 info, 3 warning, 4 error */
  void (*log)(void* context, int32_t level, const char* text);
  /* Returns 1 if the job was aborted: functions that wait must then return HVD_ABORTED soon. */
  int (*is_stopped)(void* context);
  /* Performs the call with the best of the other backends. All ranks of the group must call it, only inside run(). */
  hvd_status (*delegate)(void* context, const hvd_plugin_call* call);
} hvd_plugin_host;

/* The ranks that perform collectives together: all of the job, or those of a process set. Numbered from 0. */
typedef struct hvd_plugin_group {
  size_t struct_size;
  int32_t rank, size;
  const int32_t* job_ranks; /* for each rank of the group, its number in the job */
} hvd_plugin_group;

/* For plugins whose library also belongs to a launcher, such as MPI: the ranks find each other through it. */
typedef struct hvd_plugin_launch {
  size_t struct_size;
  /* Joins the job. May be called again, also after hvd has left the job. */
  hvd_status (*join)(int32_t* rank, int32_t* size);
  /* Copies rank 0's bytes to all ranks of the job. All of them must call. */
  hvd_status (*broadcast)(void* bytes, size_t size);
} hvd_plugin_launch;

/* For plugins that can transmit messages between ranks of a group; hvd's own algorithms use them. Between two ranks,
 * messages are matched in the order in which each side posts them. */
typedef struct hvd_plugin_transport {
  size_t struct_size;
  /* The memory belongs to the plugin until the operation is complete. `label` is the same on both sides; if the labels
   * or the lengths differ, the receiver's operation fails with HVD_INTERNAL. Operations complete in any order. */
  hvd_status (*post_send)(void* group, int32_t peer, uint64_t label, const void* bytes, size_t size, void** operation);
  hvd_status (*post_receive)(void* group, int32_t peer, uint64_t label, void* bytes, size_t size, void** operation);
  /* Stores in *done whether the operation is complete; it is then released, even if it failed. Never blocks. */
  hvd_status (*test)(void* group, void* operation, int* done);
} hvd_plugin_transport;

typedef struct hvd_plugin {
  size_t struct_size;
  uint32_t abi_version;    /* HVD_PLUGIN_ABI_VERSION */
  const char* name;        /* of the backend, for display */
  const char* description; /* library and version, for display */
  const char* (*last_error)(void);
  /* Checks whether the library works on this rank. Involves no other rank. */
  hvd_status (*self_test)(void);

  /* Must be called by all ranks of the group together. The host stays valid until the group is closed. */
  hvd_status (*open_group)(const hvd_plugin_host* host, const hvd_plugin_group* group, void** opened);
  /* Returns how well this backend suits the call; 0: it cannot perform it. Must depend only on values that are the same
   * on every rank. hvd's own backends have scores from 1 to 100. */
  int32_t (*score)(void* group, const hvd_plugin_call* call);
  /* Performs the call; returns when the outputs are complete. After a failure the job ends; only close_group() follows
   * for the group. */
  hvd_status (*run)(void* group, const hvd_plugin_call* call);
  /* Called on each rank independently. `failed`: some of the started operations have not ended. */
  void (*close_group)(void* group, int failed);

  const hvd_plugin_launch* launch;       /* may be NULL */
  const hvd_plugin_transport* transport; /* may be NULL */
} hvd_plugin;

/* The only function that a plugin exports. Returns NULL if the plugin does not support this version of the table;
 * otherwise the table stays valid until the process ends. */
typedef const hvd_plugin* (*hvd_plugin_get_function)(uint32_t abi_version);
#define HVD_PLUGIN_GET "hvd_plugin_get"

#ifdef __cplusplus
}
#endif

#endif /* HVD_PLUGIN_H */
