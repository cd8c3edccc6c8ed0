// A TensorFlow without TensorFlow: what tests say to the library that libhvd_tensorflow.so finds in its place.
//
// c_api.cc has the functions of the C API that hvd calls, over the registry, nodes and contexts of this file. They are
// as strict as the real ones, and stricter: whoever touches a context after it was told that the kernel is through, or
// calls back twice, ends the process; and the callback is gone when the kernel's function returns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/tensorflow/c_api.h"

namespace hvd::testing {

using Dims = std::vector<std::int64_t>;

// Counts what was made and not given back.
class Counted {
 public:
  Counted() { ++live; }
  Counted(const Counted&) : Counted() {}
  Counted& operator=(const Counted&) = default;
  ~Counted() { --live; }
  static std::atomic<int> live;
};

// Memory of tensors, shared by all that refer to it.
struct FakeBuffer : Counted {
  ~FakeBuffer() {
    if (give_back) give_back();
  }
  void* data = nullptr;
  std::size_t bytes = 0;
  bool on_gpu = false;
  bool lent = false;  // by TF_NewTensor(): not to be written by anybody else
  std::function<void()> give_back;
};

struct FakeTensor {
  tf::DataType type = tf::DataType::float32;
  Dims dims;
  std::shared_ptr<FakeBuffer> buffer;

  std::size_t elements() const;

  template <typename T>
  std::vector<T> values() const {
    std::vector<T> all(elements());
    if (!all.empty()) std::memcpy(all.data(), buffer->data, all.size() * sizeof(T));
    return all;
  }
};

// Content undefined.
FakeTensor make_tensor(tf::DataType type, Dims dims, bool on_gpu = false);

template <typename T>
FakeTensor tensor_of(tf::DataType type, Dims dims, const std::vector<T>& values) {
  FakeTensor tensor = make_tensor(type, std::move(dims));
  if (!values.empty()) std::memcpy(tensor.buffer->data, values.data(), values.size() * sizeof(T));
  return tensor;
}

// What a call that is told to fail gives: TensorFlow's ABORTED, which nothing of hvd's is.
inline constexpr tf::Code kToldToFail{10};

struct FakeOp {
  std::vector<std::string> inputs, outputs, attributes;  // "name: type = default"
  bool stateful = false;
  tf::ShapeFunction shape = nullptr;
};

struct FakeKernel {
  tf::Create create = nullptr;
  tf::Compute compute = nullptr;
  tf::ComputeAsync compute_async = nullptr;  // instead of compute
  tf::Delete destroy = nullptr;
  std::set<std::string> on_host;  // arguments
};

struct FakeRegistry {
  std::map<std::string, FakeOp> ops;
  std::map<std::pair<std::string, std::string>, FakeKernel> kernels;  // by op and device
};
FakeRegistry& registry();

// The GPU that there is: its number, and memory of it.
struct FakeGpuDevice {
  int number = 0;
  std::function<std::shared_ptr<void>(std::size_t)> allocate;
};
void set_gpu(FakeGpuDevice device);

// From its call number `after` + 1 on, the function ends with a status that names it.
void fail_in(const std::string& function, int after = 0);
void nothing_fails();

using Attribute = std::pair<std::int64_t, std::string>;  // one of the two
using Attributes = std::map<std::string, Attribute>;

inline Attribute number(std::int64_t value) { return {value, {}}; }
inline Attribute text(std::string value) { return {0, std::move(value)}; }
// As the ops have them.
Attribute bits(double value);

// A node of a graph. Attributes that are not given have the op's defaults.
class FakeNode {
 public:
  FakeNode(const std::string& op, std::string device, Attributes attributes);
  ~FakeNode();
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  // Empty if there is a kernel.
  const std::string& problem() const { return problem_; }
  const FakeOp& op() const { return op_; }
  const FakeKernel& kernel() const { return kernel_; }
  void* state() const { return state_; }
  bool input_on_gpu(int i) const { return on_gpu(op_.inputs, i); }
  bool output_on_gpu(int i) const { return on_gpu(op_.outputs, i); }

 private:
  bool on_gpu(const std::vector<std::string>& arguments, int i) const;

  const std::string device_;
  const FakeOp& op_;
  const FakeKernel& kernel_;
  Attributes attributes_;
  std::string problem_;
  void* state_ = nullptr;
};

// One run of a node. Lives until the kernel is through.
class FakeRun {
 public:
  // The inputs are where the kernel wants them: tests say so, and this looks.
  FakeRun(const FakeNode& node, std::vector<FakeTensor> inputs);
  ~FakeRun();
  FakeRun(const FakeRun&) = delete;
  FakeRun& operator=(const FakeRun&) = delete;

  void start();
  bool through() const;
  // Waits for the kernel; false after a minute.
  bool wait();
  FakeRun& run() { return start(), wait(), *this; }

  tf::Code code() const;
  const std::string& message() const;
  std::thread::id ended_on() const;
  // Of an input's memory.
  bool has_memory_of(const void* memory, int output) const;

  // As they were at the very moment when the kernel said that it was through.
  template <typename T>
  std::vector<T> values(int output) const {
    const std::vector<std::byte>& bytes = bytes_of(output);
    std::vector<T> all(bytes.size() / sizeof(T));
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
  const Dims& dims(int output) const;

 private:
  const std::vector<std::byte>& bytes_of(int output) const;

  const FakeNode& node_;
  const std::unique_ptr<tf::OpKernelContext> context_;
};

// What the op's shape function says of its outputs; nothing: unknown. Throws std::runtime_error if it fails.
std::vector<std::optional<Dims>> infer_shapes(const std::string& op, std::vector<Dims> inputs, int outputs);

}  // namespace hvd::testing
