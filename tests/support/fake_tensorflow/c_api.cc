// The functions of TensorFlow's C API that hvd calls; what they are about is in fake_tensorflow.h.
#include "bindings/tensorflow/c_api.h"

#include <cstring>

#include "tests/support/fake_tensorflow/contexts.h"

using namespace hvd::tf;
using hvd::testing::Dims;
using hvd::testing::fails;
using hvd::testing::FakeTensor;
using hvd::testing::misused;

namespace {

constexpr std::uintptr_t kAlignment = 64;
char nothing = 0;  // what empty tensors point to, wherever they lie

Tensor* handle_to(const FakeTensor& value) {
  auto* const handle = new Tensor;
  handle->value = value;
  return handle;
}

OpKernelContext& in_use(OpKernelContext* context) {
  const std::lock_guard lock(context->mutex);
  if (context->through) misused("a context was used after the end");
  return *context;
}

Dims to_dims(const std::int64_t* dims, int count) { return {dims, dims + count}; }

std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace

extern "C" {

Status* TF_NewStatus() { return new Status; }
void TF_DeleteStatus(Status* status) { delete status; }
void TF_SetStatus(Status* status, Code code, const char* message) {
  status->code = code;
  status->message = message;
}
Code TF_GetCode(const Status* status) { return status->code; }
const char* TF_Message(const Status* status) { return status->message.c_str(); }

Tensor* TF_NewTensor(DataType type, const std::int64_t* dims, int count, void* data, std::size_t bytes,
                     Deallocator deallocator, void* argument) {
  if (reinterpret_cast<std::uintptr_t>(data) % kAlignment != 0) misused("TF_NewTensor() would copy this by memcpy");
  FakeTensor tensor{.type = type, .dims = to_dims(dims, count), .buffer = std::make_shared<hvd::testing::FakeBuffer>()};
  tensor.buffer->data = data;
  tensor.buffer->bytes = bytes;
  tensor.buffer->lent = true;
  tensor.buffer->give_back = [=] { deallocator(data, bytes, argument); };
  return handle_to(tensor);
}
void TF_DeleteTensor(Tensor* tensor) { delete tensor; }
void* TF_TensorData(const Tensor* tensor) {
  return tensor->value.elements() == 0 ? &nothing : tensor->value.buffer->data;
}
DataType TF_TensorType(const Tensor* tensor) { return tensor->value.type; }
std::size_t TF_TensorByteSize(const Tensor* tensor) { return tensor->value.buffer->bytes; }
int TF_NumDims(const Tensor* tensor) { return static_cast<int>(tensor->value.dims.size()); }
std::int64_t TF_Dim(const Tensor* tensor, int i) { return tensor->value.dims.at(at(i)); }

OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name) {
  auto* const builder = new OpDefinitionBuilder;
  builder->name = name;
  return builder;
}
void TF_OpDefinitionBuilderAddInput(OpDefinitionBuilder* builder, const char* input) {
  builder->op.inputs.emplace_back(input);
}
void TF_OpDefinitionBuilderAddOutput(OpDefinitionBuilder* builder, const char* output) {
  builder->op.outputs.emplace_back(output);
}
void TF_OpDefinitionBuilderAddAttr(OpDefinitionBuilder* builder, const char* attribute) {
  builder->op.attributes.emplace_back(attribute);
}
void TF_OpDefinitionBuilderSetIsStateful(OpDefinitionBuilder* builder, bool) { builder->op.stateful = true; }
void TF_OpDefinitionBuilderSetShapeInferenceFunction(OpDefinitionBuilder* builder, ShapeFunction shape) {
  builder->op.shape = shape;
}
void TF_RegisterOpDefinition(OpDefinitionBuilder* builder, Status* status) {
  const std::unique_ptr<OpDefinitionBuilder> own(builder);
  if (fails("TF_RegisterOpDefinition", status)) return;
  if (hvd::testing::registry().ops.emplace(own->name, own->op).second) return;
  TF_SetStatus(status, Code::invalid_argument, "an op with this name is there");
}

ShapeHandle* TF_NewShapeHandle() { return new ShapeHandle; }
void TF_DeleteShapeHandle(ShapeHandle* handle) { delete handle; }
std::int64_t TF_ShapeInferenceContextNumInputs(ShapeInferenceContext* context) {
  return static_cast<std::int64_t>(context->inputs.size());
}
void TF_ShapeInferenceContextGetInput(ShapeInferenceContext* context, int i, ShapeHandle* handle, Status* status) {
  if (!fails("TF_ShapeInferenceContextGetInput", status)) handle->dims = context->inputs.at(at(i));
}
void TF_ShapeInferenceContextSetOutput(ShapeInferenceContext* context, int i, ShapeHandle* handle, Status* status) {
  if (!fails("TF_ShapeInferenceContextSetOutput", status)) context->outputs.at(at(i)) = handle->dims;
}
void TF_ShapeInferenceContextSetUnknownShape(ShapeInferenceContext* context, Status* status) {
  if (fails("TF_ShapeInferenceContextSetUnknownShape", status)) return;
  for (auto& output : context->outputs) output.reset();
}
ShapeHandle* TF_ShapeInferenceContextScalar(ShapeInferenceContext*) {
  auto* const handle = new ShapeHandle;
  handle->dims = Dims{};
  return handle;
}

KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device, Create create, Compute compute, Delete destroy) {
  auto* const builder = new KernelBuilder;
  builder->op = op;
  builder->device = device;
  builder->kernel = {.create = create, .compute = compute, .compute_async = nullptr, .destroy = destroy, .on_host = {}};
  return builder;
}
KernelBuilder* TF_NewAsyncKernelBuilder(const char* op, const char* device, Create create, ComputeAsync compute,
                                        Delete destroy) {
  KernelBuilder* const builder = TF_NewKernelBuilder(op, device, create, nullptr, destroy);
  builder->kernel.compute_async = compute;
  return builder;
}
void TF_KernelBuilder_HostMemory(KernelBuilder* builder, const char* argument) {
  builder->kernel.on_host.insert(argument);
}
void TF_RegisterKernelBuilder(const char*, KernelBuilder* builder, Status* status) {
  const std::unique_ptr<KernelBuilder> own(builder);
  if (fails("TF_RegisterKernelBuilder", status)) return;
  const auto& op = hvd::testing::registry().ops.at(own->op);
  for (const std::string& argument : own->kernel.on_host) {
    bool known = false;
    for (const auto& list : {op.inputs, op.outputs}) {
      for (const std::string& each : list) known = known || each.rfind(argument + ":", 0) == 0;
    }
    if (!known) return TF_SetStatus(status, Code::invalid_argument, "HostMemory of an argument that is not there");
  }
  hvd::testing::registry().kernels[{own->op, own->device}] = own->kernel;
}

void TF_OpKernelConstruction_GetAttrInt64(OpKernelConstruction* construction, const char* name, std::int64_t* value,
                                          Status* status) {
  if (fails("TF_OpKernelConstruction_GetAttrInt64", status)) return;
  const auto found = construction->attributes.find(name);
  if (found == construction->attributes.end()) return TF_SetStatus(status, Code::invalid_argument, name);
  *value = found->second.first;
}
void TF_OpKernelConstruction_GetAttrSize(OpKernelConstruction* construction, const char* name, std::int32_t* list_size,
                                         std::int32_t* total_size, Status* status) {
  if (fails("TF_OpKernelConstruction_GetAttrSize", status)) return;
  *list_size = -1;
  *total_size = static_cast<std::int32_t>(construction->attributes.at(name).second.size());
}
void TF_OpKernelConstruction_GetAttrString(OpKernelConstruction* construction, const char* name, char* value,
                                           std::size_t bytes, Status* status) {
  if (fails("TF_OpKernelConstruction_GetAttrString", status)) return;
  std::memcpy(value, construction->attributes.at(name).second.data(), bytes);
}
hvd::tf::StringView TF_OpKernelConstruction_GetName(OpKernelConstruction* construction) {
  return {construction->name.data(), construction->name.size()};
}
void TF_OpKernelConstruction_Failure(OpKernelConstruction* construction, Status* status) {
  construction->problem = status->message;
}

void TF_OpKernelContext_Failure(OpKernelContext* context, Status* status) {
  in_use(context).code = status->code;
  context->message = status->message;
}
int TF_NumInputs(OpKernelContext* context) { return static_cast<int>(in_use(context).inputs.size()); }
int TF_NumOutputs(OpKernelContext* context) { return static_cast<int>(in_use(context).outputs.size()); }
int TF_GetDeviceId(OpKernelContext* context) { return in_use(context), hvd::testing::gpu_number(); }
void TF_GetInput(OpKernelContext* context, int i, Tensor** tensor, Status* status) {
  if (fails("TF_GetInput", status)) return;
  *tensor = handle_to(in_use(context).inputs.at(at(i)));
}
void TF_SetOutput(OpKernelContext* context, int i, const Tensor* tensor, Status* status) {
  if (fails("TF_SetOutput", status)) return;
  in_use(context).outputs.at(at(i)) = tensor->value;
}
Tensor* TF_AllocateOutput(OpKernelContext* context, int i, DataType type, const std::int64_t* dims, int count,
                          std::size_t bytes, Status* status) {
  if (fails("TF_AllocateOutput", status)) return nullptr;
  const bool on_gpu = in_use(context).node.output_on_gpu(i);
  const FakeTensor made = hvd::testing::make_tensor(type, to_dims(dims, count), on_gpu);
  if (made.buffer->bytes != bytes) misused("TF_AllocateOutput() with the wrong size");
  context->outputs.at(at(i)) = made;
  return handle_to(made);
}
Tensor* TF_ForwardInputOrAllocateOutput(OpKernelContext* context, const int* candidates, int candidate_count, int i,
                                        const std::int64_t* dims, int count, int* forwarded, Status* status) {
  if (fails("TF_ForwardInputOrAllocateOutput", status)) return nullptr;
  const bool on_gpu = in_use(context).node.output_on_gpu(i);
  for (int c = 0; c < candidate_count; ++c) {
    const FakeTensor& input = context->inputs.at(at(candidates[c]));
    if (input.buffer.use_count() != 1 || input.buffer->lent || input.buffer->on_gpu != on_gpu) continue;
    *forwarded = candidates[c];
    context->outputs.at(at(i)) = input;
    return handle_to(input);
  }
  const DataType type = context->inputs.at(at(candidates[0])).type;
  context->outputs.at(at(i)) = hvd::testing::make_tensor(type, to_dims(dims, count), on_gpu);
  return handle_to(*context->outputs.at(at(i)));
}

}  // extern "C"

// They are what hvd takes them for.
#define HVD_TF_SAME(name, ...) static_assert(std::is_same_v<decltype(&TF_##name), std::type_identity_t<__VA_ARGS__>>);
HVD_TF_FUNCTIONS(HVD_TF_SAME)
#undef HVD_TF_SAME
