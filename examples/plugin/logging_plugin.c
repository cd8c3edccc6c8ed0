/* A backend for hvd that only logs each collective and hands it on to hvd's own backends: a start for one of your own.
 *
 *   cc -shared -fPIC -I"$(hvd --include-dir)" examples/plugin/logging_plugin.c -o build/logging_plugin.so
 *   HVD_PLUGINS=$PWD/build/logging_plugin.so HVD_LOG_LEVEL=info hvdrun -np 2 python train.py
 */
#include "hvd_plugin.h"

#include <stdio.h>
#include <stdlib.h>

/* What one group of ranks has here. */
typedef struct group {
  const hvd_plugin_host* host;
  int rank, size;
} group;

static const char* const collectives[] = {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier"};

static _Thread_local const char* error = "";

static const char* last_error(void) { return error; }

/* A plugin that needs a library or a device looks for it here. */
static hvd_status self_test(void) { return HVD_OK; }

static hvd_status open_group(const hvd_plugin_host* host, const hvd_plugin_group* ranks, void** opened) {
  group* const made = malloc(sizeof *made);
  if (made == NULL) {
    error = "out of memory";
    return HVD_INTERNAL;
  }
  made->host = host;
  made->rank = ranks->rank;
  made->size = ranks->size;
  *opened = made;
  return HVD_OK;
}

/* More than any backend of hvd has: every collective comes here first. */
static int32_t score(void* opened, const hvd_plugin_call* call) {
  (void)opened;
  return call->collective <= HVD_REDUCESCATTER ? 1000 : 0;
}

static hvd_status run(void* opened, const hvd_plugin_call* call) {
  const group* const own = opened;
  char line[160];
  snprintf(line, sizeof line, "rank %d of %d: %s of %zu tensors, call %llu", own->rank, own->size,
           collectives[call->collective], call->count, (unsigned long long)call->sequence);
  own->host->log(own->host->context, 2, line);
  return own->host->delegate(own->host->context, call);
}

static void close_group(void* opened, int failed) {
  (void)failed;
  free(opened);
}

static const hvd_plugin plugin = {
    .struct_size = sizeof(hvd_plugin),
    .abi_version = HVD_PLUGIN_ABI_VERSION,
    .name = "logging",
    .description = "logs each collective and hands it on",
    .last_error = last_error,
    .self_test = self_test,
    .open_group = open_group,
    .score = score,
    .run = run,
    .close_group = close_group,
};

HVD_API const hvd_plugin* hvd_plugin_get(uint32_t abi_version) {
  return abi_version == HVD_PLUGIN_ABI_VERSION ? &plugin : NULL;
}
