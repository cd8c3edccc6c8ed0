// The fake CUDA driver and the fake NCCL, as tests use them: rank r of run_ranks has device r, through hvd's own
// loader.
//
// One at a time in a process, as all share the libraries' state.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "core/config.h"
#include "core/runtime/runtime.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_nccl/fake_nccl.h"

namespace hvd::testing {

class FakeGpu {
 public:
  // As if just installed: nothing fails.
  explicit FakeGpu(unsigned seed = 1, int longest_delay_us = 50);
  // Throws nothing, but ends the process if something was not given back: a leak is a fault of the code under test.
  ~FakeGpu();
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  // What has hvd take the fakes.
  static Environment environment();
  // A driver that lacks what is younger than CUDA 12.4, and an NCCL of another version.
  static std::string older_cuda();
  static std::string older_nccl();

  const FakeCudaControls& cuda() const { return cuda_; }
  const FakeNcclControls& nccl() const { return nccl_; }

  // Memory of a device, poisoned; what was put into its streams is waited for before it goes.
  class Block {
   public:
    Block(const FakeGpu& gpu, int device, std::size_t bytes);
    ~Block();
    Block(Block&& other) noexcept;
    Block& operator=(Block&& other) noexcept;

    std::byte* data() const { return memory_; }

   private:
    const FakeGpu* gpu_;
    int device_;
    std::byte* memory_ = nullptr;
  };

  using Graph = std::unique_ptr<void, int (*)(void*)>;

  // A stream of a device, as a framework has them.
  class Stream {
   public:
    Stream(const FakeGpu& gpu, int device);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void* handle() const { return handle_; }
    void put(const std::function<void()>& task);
    // What is put into this stream from here on, and into others that wait for it, only becomes part of the graph.
    void begin_capture();
    Graph end_capture();
    void put(const Graph& graph);
    void drain();

   private:
    const FakeGpu& gpu_;
    const int device_;
    void* handle_ = nullptr;
  };

 private:
  friend class Block;
  friend class Stream;
  struct DriverFunctions {
    int (*allocate)(unsigned long long*, std::size_t);
    int (*free)(unsigned long long);
    int (*create_stream)(void**, unsigned, int);
    int (*destroy_stream)(void*);
    int (*begin_capture)(void*, int);
    int (*end_capture)(void*, void**);
    int (*launch_graph)(void*, void*);
    int (*destroy_graph)(void*);
  };

  FakeCudaControls cuda_{};
  FakeNcclControls nccl_{};
  DriverFunctions driver_{};
};

}  // namespace hvd::testing
