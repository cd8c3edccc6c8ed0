// An NCCL without a GPU: what the tests say to the library that ops/gpu opens in its place.
//
// fake_nccl.cc is built into a shared library with NCCL's symbols, over the fake driver: a collective is a task in a
// stream of that. Ranks are threads of one process and meet under their unique id. Whoever calls in an order that NCCL
// does not allow (a communicator that is not ready, another device's thread, one that was destroyed) is refused.
#pragma once

namespace hvd::testing {

// Beside NCCL's functions these can be told to fail: "async" (what ncclCommGetAsyncError reports), "hang" (a result
// other than 0: what is put into the stream never ends), "init" (kNeverReady: the communicator never comes about).
struct FakeNcclControls {
  // As FakeCudaControls::inject; `rank`: in the communicator; -1: any, also where there is none.
  void (*inject)(const char* function, int rank, int after, int result);
  // As FakeCudaControls::calls.
  int (*calls)(const char* prefix);
  void (*reset)();
  // Communicators that were neither destroyed nor aborted; and how many were aborted so far.
  int (*live_communicators)();
  int (*aborted_communicators)();
};

constexpr int kNeverReady = -1;

}  // namespace hvd::testing
