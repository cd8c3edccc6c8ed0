// The part of TensorFlow's C API that hvd calls, declared independently: hvd builds without TensorFlow headers, and one
// library serves all versions. find_c_api() looks the functions up in the TensorFlow that the process has loaded.
//
// Sources: tensorflow/c/{ops,kernels,tf_status,tf_tensor}.h. Names are those of the symbols without "TF_". GetDeviceId
// returns CUDA's ordinal of the GPU, whichever name TensorFlow uses (visible devices, logical devices).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace hvd::tf {

struct Status;
struct Tensor;
struct OpDefinitionBuilder;
struct ShapeInferenceContext;
struct ShapeHandle;
struct KernelBuilder;
struct OpKernelConstruction;
struct OpKernelContext;
struct AsyncDoneCallback;

// TF_StringView: not NUL-terminated.
struct StringView {
  const char* data;
  std::size_t size;
};

// TF_Code: the codes that hvd reports.
enum class Code : int { ok = 0, unknown = 2, invalid_argument = 3, failed_precondition = 9, unimplemented = 12 };

// TF_DataType: the types that hvd supports.
enum class DataType : int {
  float32 = 1,
  float64 = 2,
  int32 = 3,
  uint8 = 4,
  int16 = 5,
  int8 = 6,
  int64 = 9,
  boolean = 10,
  bfloat16 = 14,
  uint16 = 17,
  float16 = 19,
  uint32 = 22,
  uint64 = 23
};

using ShapeFunction = void (*)(ShapeInferenceContext*, Status*);
using Create = void* (*)(OpKernelConstruction*);
using Compute = void (*)(void* kernel, OpKernelContext*);
using ComputeAsync = void (*)(void* kernel, OpKernelContext*, AsyncDoneCallback*);
using Delete = void (*)(void* kernel);
using Deallocator = void (*)(void* data, std::size_t bytes, void* argument);

// name, type: HVD_TF_FUNCTIONS(X) calls X(NewStatus, Status* (*)()) and so on.
#define HVD_TF_FUNCTIONS(X)                                                                                            \
  X(NewStatus, Status* (*)())                                                                                          \
  X(DeleteStatus, void (*)(Status*))                                                                                   \
  X(SetStatus, void (*)(Status*, Code, const char*))                                                                   \
  X(GetCode, Code (*)(const Status*))                                                                                  \
  X(Message, const char* (*)(const Status*))                                                                           \
  X(NewTensor, Tensor* (*)(DataType, const std::int64_t* dims, int, void* data, std::size_t, Deallocator, void*))      \
  X(DeleteTensor, void (*)(Tensor*))                                                                                   \
  X(TensorData, void* (*)(const Tensor*))                                                                              \
  X(TensorType, DataType (*)(const Tensor*))                                                                           \
  X(TensorByteSize, std::size_t (*)(const Tensor*))                                                                    \
  X(NumDims, int (*)(const Tensor*))                                                                                   \
  X(Dim, std::int64_t (*)(const Tensor*, int))                                                                         \
  X(NewOpDefinitionBuilder, OpDefinitionBuilder* (*)(const char* name))                                                \
  X(OpDefinitionBuilderAddInput, void (*)(OpDefinitionBuilder*, const char*))                                          \
  X(OpDefinitionBuilderAddOutput, void (*)(OpDefinitionBuilder*, const char*))                                         \
  X(OpDefinitionBuilderAddAttr, void (*)(OpDefinitionBuilder*, const char*))                                           \
  X(OpDefinitionBuilderSetIsStateful, void (*)(OpDefinitionBuilder*, bool ignored))                                    \
  X(OpDefinitionBuilderSetShapeInferenceFunction, void (*)(OpDefinitionBuilder*, ShapeFunction))                       \
  X(RegisterOpDefinition, void (*)(OpDefinitionBuilder*, Status*))                                                     \
  X(NewShapeHandle, ShapeHandle* (*)())                                                                                \
  X(DeleteShapeHandle, void (*)(ShapeHandle*))                                                                         \
  X(ShapeInferenceContextNumInputs, std::int64_t (*)(ShapeInferenceContext*))                                          \
  X(ShapeInferenceContextGetInput, void (*)(ShapeInferenceContext*, int, ShapeHandle*, Status*))                       \
  X(ShapeInferenceContextSetOutput, void (*)(ShapeInferenceContext*, int, ShapeHandle*, Status*))                      \
  X(ShapeInferenceContextSetUnknownShape, void (*)(ShapeInferenceContext*, Status*))                                   \
  X(ShapeInferenceContextScalar, ShapeHandle* (*)(ShapeInferenceContext*))                                             \
  X(NewKernelBuilder, KernelBuilder* (*)(const char* op, const char* device, Create, Compute, Delete))                 \
  X(NewAsyncKernelBuilder, KernelBuilder* (*)(const char* op, const char* device, Create, ComputeAsync, Delete))       \
  X(KernelBuilder_HostMemory, void (*)(KernelBuilder*, const char* argument))                                          \
  X(RegisterKernelBuilder, void (*)(const char* class_name, KernelBuilder*, Status*))                                  \
  X(OpKernelConstruction_GetAttrInt64, void (*)(OpKernelConstruction*, const char*, std::int64_t*, Status*))           \
  X(OpKernelConstruction_GetAttrSize,                                                                                  \
    void (*)(OpKernelConstruction*, const char*, std::int32_t* list_size, std::int32_t* total_size, Status*))          \
  X(OpKernelConstruction_GetAttrString, void (*)(OpKernelConstruction*, const char*, char*, std::size_t, Status*))     \
  X(OpKernelConstruction_GetName, StringView (*)(OpKernelConstruction*))                                               \
  X(OpKernelConstruction_Failure, void (*)(OpKernelConstruction*, Status*))                                            \
  X(OpKernelContext_Failure, void (*)(OpKernelContext*, Status*))                                                      \
  X(NumInputs, int (*)(OpKernelContext*))                                                                              \
  X(GetDeviceId, int (*)(OpKernelContext*))                                                                            \
  X(GetInput, void (*)(OpKernelContext*, int, Tensor**, Status*))                                                      \
  X(SetOutput, void (*)(OpKernelContext*, int, const Tensor*, Status*))                                                \
  X(AllocateOutput, Tensor* (*)(OpKernelContext*, int, DataType, const std::int64_t* dims, int, std::size_t, Status*)) \
  X(ForwardInputOrAllocateOutput, Tensor* (*)(OpKernelContext*, const int* candidates, int, int output,                \
                                              const std::int64_t* dims, int, int* forwarded, Status*))

struct CApi {
#define HVD_TF_MEMBER(name, ...) std::type_identity_t<__VA_ARGS__> name = nullptr;
  HVD_TF_FUNCTIONS(HVD_TF_MEMBER)
#undef HVD_TF_MEMBER
};

// Looks up the functions; returns false and the reason if this process has no TensorFlow that hvd supports.
bool find_c_api(CApi& api, std::string& problem);

// ---- Owners of the objects that the C API creates

// TensorFlow's functions, looked up when this library was loaded.
const CApi& api();

struct DeleteTensor {
  void operator()(Tensor* tensor) const { api().DeleteTensor(tensor); }
};
using OwnedTensor = std::unique_ptr<Tensor, DeleteTensor>;

class OwnedStatus {
 public:
  OwnedStatus() : status_(api().NewStatus()) {}
  OwnedStatus(Code code, const std::string& message) : OwnedStatus() { set(code, message); }
  OwnedStatus(const OwnedStatus&) = delete;
  OwnedStatus& operator=(const OwnedStatus&) = delete;
  ~OwnedStatus() { api().DeleteStatus(status_); }

  void set(Code code, const std::string& message) { api().SetStatus(status_, code, message.c_str()); }
  bool ok() const { return api().GetCode(status_) == Code::ok; }
  Status* get() const { return status_; }

 private:
  Status* const status_;
};

}  // namespace hvd::tf
