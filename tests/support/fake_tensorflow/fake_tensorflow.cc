#include "tests/support/fake_tensorflow/fake_tensorflow.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/fake_cuda/injections.h"
#include "tests/support/fake_tensorflow/contexts.h"

namespace hvd::testing {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr auto kLongestWait = std::chrono::minutes(1);

Injections& injections() {
  static Injections all;
  return all;
}

FakeGpuDevice& gpu() {
  static FakeGpuDevice device;
  return device;
}

std::size_t bytes_of_element(tf::DataType type) {
  switch (type) {
    case tf::DataType::float64:
    case tf::DataType::uint64:
    case tf::DataType::int64: return 8;
    case tf::DataType::float32:
    case tf::DataType::uint32:
    case tf::DataType::int32: return 4;
    case tf::DataType::int16:
    case tf::DataType::uint16:
    case tf::DataType::float16:
    case tf::DataType::bfloat16: return 2;
    default: return 1;
  }
}

std::string name_in(const std::string& specification) { return specification.substr(0, specification.find(':')); }

std::string default_in(const std::string& specification) {
  const auto at = specification.find(" = ");
  return at == std::string::npos ? std::string() : specification.substr(at + 3);
}

// A list has the rest.
std::string argument_at(const std::vector<std::string>& arguments, int i) {
  return name_in(arguments.at(std::min(static_cast<std::size_t>(i), arguments.size() - 1)));
}

// The outputs of a kernel that has failed are nobody's to read: a GPU may still write there.
void end(tf::OpKernelContext& context) {
  for (const auto& output : context.outputs) {
    auto& read = context.read.emplace_back();
    if (context.code != tf::Code::ok || !output || output->elements() == 0) continue;
    read.resize(output->elements() * bytes_of_element(output->type));
    std::memcpy(read.data(), output->buffer->data, read.size());
  }
  context.inputs.clear();
  const std::lock_guard lock(context.mutex);
  if (context.through) misused("a kernel called back twice");
  context.through = true;
  context.ended_on = std::this_thread::get_id();
  context.changed.notify_all();
}

// As TensorFlow's own: the parameter's address is handed out, and the parameter goes with this call.
void compute_async(const FakeKernel& kernel, void* state, tf::OpKernelContext* context, std::function<void()> done) {
  kernel.compute_async(state, context, reinterpret_cast<tf::AsyncDoneCallback*>(&done));
  done = nullptr;
}

}  // namespace

std::atomic<int> Counted::live{0};

std::size_t FakeTensor::elements() const {
  std::size_t all = 1;
  for (const std::int64_t dim : dims) all *= static_cast<std::size_t>(dim);
  return all;
}

FakeTensor make_tensor(tf::DataType type, Dims dims, bool on_gpu) {
  FakeTensor tensor{.type = type, .dims = std::move(dims), .buffer = std::make_shared<FakeBuffer>()};
  FakeBuffer& buffer = *tensor.buffer;
  buffer.bytes = tensor.elements() * bytes_of_element(type);
  buffer.on_gpu = on_gpu;
  if (buffer.bytes == 0) return tensor;
  if (on_gpu) {
    auto memory = gpu().allocate(buffer.bytes);
    buffer.data = memory.get();
    buffer.give_back = [memory]() mutable { memory.reset(); };
    return tensor;
  }
  buffer.data = std::aligned_alloc(kAlignment, (buffer.bytes + kAlignment - 1) / kAlignment * kAlignment);
  buffer.give_back = [data = buffer.data] { std::free(data); };
  return tensor;
}

FakeRegistry& registry() {
  static FakeRegistry all;
  return all;
}

void set_gpu(FakeGpuDevice device) { gpu() = std::move(device); }

int gpu_number() { return gpu().number; }

void fail_in(const std::string& function, int after) { injections().add(function.c_str(), -1, after, 1); }

void nothing_fails() { injections().clear(); }

bool fails(const char* function, tf::Status* status) {
  const bool failed = injections().of(function, -1) != 0;
  status->code = failed ? kToldToFail : tf::Code::ok;
  status->message = failed ? std::string(function) + " was told to fail" : std::string();
  return failed;
}

void misused(const std::string& how) {
  std::fprintf(stderr, "the fake TensorFlow: %s\n", how.c_str());
  std::abort();
}

Attribute bits(double value) {
  std::int64_t same = 0;
  std::memcpy(&same, &value, sizeof same);
  return number(same);
}

FakeNode::FakeNode(const std::string& op, std::string device, Attributes attributes)
    : device_(std::move(device)),
      op_(registry().ops.at(op)),
      kernel_(registry().kernels.at({op, device_})),
      attributes_(std::move(attributes)) {
  for (const std::string& specification : op_.attributes) {
    const std::string preset = default_in(specification);
    if (preset.empty()) continue;
    attributes_.try_emplace(name_in(specification), preset.front() == '\'' ? text(preset.substr(1, preset.size() - 2))
                                                                           : number(std::stoll(preset)));
  }
  tf::OpKernelConstruction construction{.attributes = attributes_, .name = op};
  state_ = kernel_.create(&construction);
  problem_ = construction.problem;
}

FakeNode::~FakeNode() {
  if (state_ != nullptr) kernel_.destroy(state_);
}

bool FakeNode::on_gpu(const std::vector<std::string>& arguments, int i) const {
  return device_ == "GPU" && kernel_.on_host.count(argument_at(arguments, i)) == 0;
}

FakeRun::FakeRun(const FakeNode& node, std::vector<FakeTensor> inputs)
    : node_(node), context_(new tf::OpKernelContext{.node = node, .inputs = std::move(inputs)}) {
  const auto count = context_->inputs.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (context_->inputs[i].buffer->on_gpu != node.input_on_gpu(static_cast<int>(i)))
      misused("an input lies elsewhere");
  }
  const auto& outputs = node.op().outputs;
  const bool list = outputs.size() == 1 && outputs[0].find(": Ts") != std::string::npos;
  context_->outputs.resize(list ? count : outputs.size());
}

FakeRun::~FakeRun() {
  if (!wait()) misused("a kernel never called back");
}

void FakeRun::start() {
  const FakeKernel& kernel = node_.kernel();
  if (kernel.compute_async != nullptr) {
    return compute_async(kernel, node_.state(), context_.get(), [context = context_.get()] { end(*context); });
  }
  kernel.compute(node_.state(), context_.get());
  end(*context_);
}

bool FakeRun::through() const {
  const std::lock_guard lock(context_->mutex);
  return context_->through;
}

bool FakeRun::wait() {
  std::unique_lock lock(context_->mutex);
  return context_->changed.wait_for(lock, kLongestWait, [this] { return context_->through; });
}

tf::Code FakeRun::code() const { return context_->code; }
const std::string& FakeRun::message() const { return context_->message; }
std::thread::id FakeRun::ended_on() const { return context_->ended_on; }

bool FakeRun::has_memory_of(const void* memory, int output) const {
  return context_->outputs.at(static_cast<std::size_t>(output))->buffer->data == memory;
}

const std::vector<std::byte>& FakeRun::bytes_of(int output) const {
  return context_->read.at(static_cast<std::size_t>(output));
}

const Dims& FakeRun::dims(int output) const { return context_->outputs.at(static_cast<std::size_t>(output))->dims; }

std::vector<std::optional<Dims>> infer_shapes(const std::string& op, std::vector<Dims> inputs, int outputs) {
  tf::ShapeInferenceContext context{.inputs = {inputs.begin(), inputs.end()}, .outputs = {}};
  context.outputs.resize(static_cast<std::size_t>(outputs));
  tf::Status status;
  registry().ops.at(op).shape(&context, &status);
  if (status.code != tf::Code::ok) throw std::runtime_error(status.message);
  return context.outputs;
}

}  // namespace hvd::testing
