// libhvd_tensorflow.so: hvd's ops, registered while tf.load_op_library() loads this library.
//
// Each collective is two ops on the same kernels. TensorFlow neither folds, merges, prunes nor reorders a stateful op:
// tf.function runs all of them one after another, in the order in which they were created. That is right for the ops
// that users call (`...Ordered`). For gradients it would prevent overlap, and cause a deadlock between ranks that
// create them in different orders. Gradients use the stateless op.
//
// The stateless op has one more input, `unforeseen`, which must come from an op that TensorFlow cannot evaluate in
// advance. A gradient may be a constant, and TensorFlow folds constants while it optimises a graph: if only one rank
// traces again, it would wait there for the others.
//
// Each op has a kernel for CPUs and one for GPUs: the latter on tensors in the GPU's memory or, if
// HVD_GPU_THROUGH_HOST=1 is set when the library is loaded, in the host's.
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bindings/tensorflow/c_api.h"
#include "bindings/tensorflow/kernels.h"

namespace hvd::tf {

namespace {

// Lists for the type attributes of ops: those that reduce, and those that only move data.
constexpr const char* kReducibleTypes = "{uint8, int8, int16, int32, int64, half, bfloat16, float, double, bool}";
constexpr const char* kMovableTypes =
    "{uint8, int8, int16, int32, int64, half, bfloat16, float, double, bool, uint16, uint32, uint64}";

CApi& found_api() {
  static CApi api;
  return api;
}

std::string& problem() {
  static auto* text = new std::string;
  return *text;
}

// Outputs have the shapes of the inputs, except for the last kExcepted.
template <int kExcepted>
void keep_shapes(ShapeInferenceContext* context, Status* status) {
  ShapeHandle* const shape = api().NewShapeHandle();
  const auto count = static_cast<int>(api().ShapeInferenceContextNumInputs(context)) - kExcepted;
  for (int i = 0; i < count && api().GetCode(status) == Code::ok; ++i) {
    api().ShapeInferenceContextGetInput(context, i, shape, status);
    if (api().GetCode(status) == Code::ok) api().ShapeInferenceContextSetOutput(context, i, shape, status);
  }
  api().DeleteShapeHandle(shape);
}

// The Python wrapper sets a more precise shape: only the first dimension is unknown.
void leave_shapes_open(ShapeInferenceContext* context, Status* status) {
  api().ShapeInferenceContextSetUnknownShape(context, status);
}

void scalar(ShapeInferenceContext* context, Status* status) {
  ShapeHandle* const shape = api().ShapeInferenceContextScalar(context);
  api().ShapeInferenceContextSetOutput(context, 0, shape, status);
  api().DeleteShapeHandle(shape);
}

struct Definition {
  std::string name;
  bool stateful = true;
  std::vector<std::string> inputs{};
  std::vector<std::string> outputs{};
  std::vector<std::string> attributes{};
  std::set<std::string> on_host{};  // arguments that are never in a GPU's memory
  ShapeFunction shape = leave_shapes_open;
};

void define(const Definition& definition) {
  OpDefinitionBuilder* const builder = api().NewOpDefinitionBuilder(definition.name.c_str());
  for (const std::string& input : definition.inputs) api().OpDefinitionBuilderAddInput(builder, input.c_str());
  for (const std::string& output : definition.outputs) api().OpDefinitionBuilderAddOutput(builder, output.c_str());
  for (const std::string& attribute : definition.attributes) {
    api().OpDefinitionBuilderAddAttr(builder, attribute.c_str());
  }
  // The call makes the op stateful whatever its argument is.
  if (definition.stateful) api().OpDefinitionBuilderSetIsStateful(builder, true);
  api().OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.shape);
  const OwnedStatus status;
  api().RegisterOpDefinition(builder, status.get());
  if (!status.ok()) problem() = definition.name + ": " + api().Message(status.get());
}

void register_kernel(const std::string& op, KernelBuilder* builder) {
  const OwnedStatus status;
  api().RegisterKernelBuilder((op + "Kernel").c_str(), builder, status.get());
  if (!status.ok()) problem() = op + ": " + api().Message(status.get());
}

// For a GPU. TensorFlow copies arguments to host memory and back, in the right order.
void register_gpu_kernel(const Definition& definition, KernelBuilder* builder, bool all_on_host) {
  for (const auto& arguments : {definition.inputs, definition.outputs}) {
    for (const std::string& argument : arguments) {
      const std::string name = argument.substr(0, argument.find(':'));
      if (all_on_host || definition.on_host.count(name) > 0) api().KernelBuilder_HostMemory(builder, name.c_str());
    }
  }
  register_kernel(definition.name, builder);
}

bool gpu_through_host() {
  const char* const value = std::getenv("HVD_GPU_THROUGH_HOST");
  const std::string text = value != nullptr ? value : "";
  return text == "1" || text == "true" || text == "on" || text == "yes";
}

template <hvd_collective kCollective, bool kOrdered = true>
void add_collective(Definition definition) {
  definition.attributes.emplace_back("waits: int = 0");
  define(definition);
  const auto builder = [&](const char* device, Create create) {
    return api().NewAsyncKernelBuilder(definition.name.c_str(), device, create, run_kernel, delete_kernel);
  };
  register_kernel(definition.name, builder("CPU", create_kernel<kCollective, kOrdered, Memory::cpu>));
  const bool through_host = gpu_through_host();
  const Create create = through_host ? create_kernel<kCollective, kOrdered, Memory::gpu_through_host>
                                     : create_kernel<kCollective, kOrdered, Memory::gpu>;
  register_gpu_kernel(definition, builder("GPU", create), through_host);
}

template <hvd_collective kCollective>
void add_twins(Definition definition) {
  Definition ordered = definition;
  ordered.name += "Ordered";
  add_collective<kCollective>(ordered);
  definition.stateful = false;
  definition.inputs.push_back("unforeseen: int32");
  definition.on_host.insert("unforeseen");
  if (definition.shape == keep_shapes<0>) definition.shape = keep_shapes<1>;
  add_collective<kCollective, false>(definition);
}

template <TopologyQuery kQuery>
void add_topology_query(const std::string& name, std::vector<std::string> attributes = {}) {
  const Definition definition{
      .name = name, .outputs = {"value: int32"}, .attributes = std::move(attributes), .shape = scalar};
  define(definition);
  const auto builder = [&](const char* device) {
    return api().NewKernelBuilder(name.c_str(), device, create_topology_kernel<kQuery>, run_topology_kernel,
                                  delete_topology_kernel);
  };
  register_kernel(name, builder("CPU"));
  register_gpu_kernel(definition, builder("GPU"), true);
}

void add_all() {
  const std::string reducible = std::string("Ts: list(") + kReducibleTypes + ") >= 1";
  const std::string movable = std::string("Ts: list(") + kMovableTypes + ") >= 1";
  const std::string type = std::string("T: ") + kMovableTypes;
  const std::string name = "tensor_name: string = ''";
  const std::string set = "process_set: int = 0";
  const std::vector<std::string> reducing{
      reducible, name, set, "reduce_op: int", "prescale_bits: int", "postscale_bits: int"};

  add_twins<HVD_ALLREDUCE>({.name = "HvdAllreduce",
                            .inputs = {"tensors: Ts"},
                            .outputs = {"reduced: Ts"},
                            .attributes = reducing,
                            .shape = keep_shapes<0>});
  add_twins<HVD_REDUCESCATTER>(
      {.name = "HvdReducescatter", .inputs = {"tensors: Ts"}, .outputs = {"rows: Ts"}, .attributes = reducing});
  add_twins<HVD_ALLGATHER>({.name = "HvdAllgather",
                            .inputs = {"tensors: Ts"},
                            .outputs = {"gathered: Ts"},
                            .attributes = {movable, name, set}});
  add_twins<HVD_BROADCAST>({.name = "HvdBroadcast",
                            .inputs = {"tensors: Ts"},
                            .outputs = {"received: Ts"},
                            .attributes = {movable, name, set, "root_rank: int"},
                            .shape = keep_shapes<0>});
  add_twins<HVD_ALLTOALL>({.name = "HvdAlltoall",
                           .inputs = {"tensor: T", "splits: int64"},
                           .outputs = {"received: T", "received_splits: int32"},
                           .attributes = {type, name, set},
                           .on_host = {"splits", "received_splits"}});
  add_collective<HVD_BARRIER>({.name = "HvdBarrier", .attributes = {name, set}});
  add_collective<HVD_JOIN>(
      {.name = "HvdJoin", .outputs = {"last_joined: int32"}, .on_host = {"last_joined"}, .shape = scalar});

  add_topology_query<TopologyQuery::rank>("HvdRank", {set});
  add_topology_query<TopologyQuery::local_rank>("HvdLocalRank");
  add_topology_query<TopologyQuery::size>("HvdSize", {set});
  add_topology_query<TopologyQuery::local_size>("HvdLocalSize");
  add_topology_query<TopologyQuery::included>("HvdProcessSetIncluded", {set});
}

bool load() {
  if (find_c_api(found_api(), problem())) add_all();
  return problem().empty();
}

}  // namespace

const CApi& api() { return found_api(); }

}  // namespace hvd::tf

// Returns why the ops could not be registered; empty if they were.
extern "C" __attribute__((visibility("default"))) const char* hvd_tensorflow_problem() {
  return hvd::tf::problem().c_str();
}

namespace hvd::tf {

// Last in the file, so that everything it needs is initialised.
[[maybe_unused]] static const bool kLoaded = load();

}  // namespace hvd::tf
