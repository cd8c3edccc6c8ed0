/* A plugin with a fault, chosen when it is compiled: -DFAULT=... */
#include "hvd_plugin.h"

#include <unistd.h>

#define WRONG_VERSION 1
#define NO_FUNCTIONS 2
#define FAILS_SELF_TEST 3
#define FAILS_TO_OPEN 4
#define FAILS_TO_RUN 5
#define NEVER_RETURNS 6
#define MISSES_A_SYMBOL 7
#define NEVER_OPENS 8

#if FAULT == MISSES_A_SYMBOL
int surely_nobody_has_this(void);
#endif

static const char* last_error(void) { return "the device is on fire"; }

static hvd_status self_test(void) {
#if FAULT == MISSES_A_SYMBOL
  return surely_nobody_has_this();
#endif
  return FAULT == FAILS_SELF_TEST ? HVD_UNSUPPORTED : HVD_OK;
}

static hvd_status open_group(const hvd_plugin_host* host, const hvd_plugin_group* group, void** opened) {
  (void)host;
  static int one;
  while (FAULT == NEVER_OPENS) sleep(1000);
  *opened = &one;
  return FAULT == FAILS_TO_OPEN && group->rank == 1 ? HVD_UNSUPPORTED : HVD_OK;
}

static int32_t score(void* group, const hvd_plugin_call* call) {
  (void)group;
  return call->collective == HVD_ALLREDUCE ? 1000 : 0;
}

static hvd_status run(void* group, const hvd_plugin_call* call) {
  (void)group;
  (void)call;
  while (FAULT == NEVER_RETURNS) sleep(1000);
  return HVD_PEER_LOST;
}

static void close_group(void* group, int failed) {
  (void)group;
  (void)failed;
}

static const hvd_plugin plugin = {
    .struct_size = sizeof(hvd_plugin),
    .abi_version = FAULT == WRONG_VERSION ? 77 : HVD_PLUGIN_ABI_VERSION,
    .name = "faulty",
    .last_error = last_error,
    .self_test = self_test,
    .open_group = open_group,
    .score = score,
    .run = FAULT == NO_FUNCTIONS ? NULL : run,
    .close_group = close_group,
};

HVD_API const hvd_plugin* hvd_plugin_get(uint32_t abi_version) {
  (void)abi_version;
  return &plugin;
}
