// The part of XLA's foreign function interface that the handlers need, in declarations of our own.
//
// Sources: xla/ffi/api/c_api.h of openxla/xla, version 0.1 and later. Structures only grow, at their ends; a runtime
// accepts handlers of its own version and, since 0.2, of older ones, so that 0.1 serves them all (jax 0.6.2 and
// later). struct_size of a structure is that of the runtime, which older ones report too small in places.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::ffi {

enum class ExtensionType : int { metadata = 1 };
enum class Stage : int { execute = 3 };
enum class ArgumentType : int { buffer = 1 };
enum class AttributeType : int { array = 1, dictionary = 2, scalar = 3, string = 4 };
enum class ErrorCode : int { invalid_argument = 3, internal = 13 };

// xla/ffi/api/c_api.h: XLA_FFI_DataType, which has the numbers of PrimitiveType in xla_data.proto.
enum class DataType : int {
  pred = 1,
  s8 = 2,
  s16 = 3,
  s32 = 4,
  s64 = 5,
  u8 = 6,
  u16 = 7,
  u32 = 8,
  u64 = 9,
  f16 = 10,
  f32 = 11,
  f64 = 12,
  c64 = 15,
  bf16 = 16,
  token = 17,  // without data
  c128 = 18,
  f8e5m2 = 19,
  f8e4m3fn = 20,
  f8e4m3b11fnuz = 23,
  f8e5m2fnuz = 24,
  f8e4m3fnuz = 25,
  f8e4m3 = 28,
  f8e3m4 = 29,
  f8e8m0fnu = 33,
};

struct Api;
struct Error;             // the runtime's
struct ExecutionContext;  // the runtime's

struct Extension {
  std::size_t struct_size;
  ExtensionType type;
  Extension* next;
};

struct ApiVersion {
  std::size_t struct_size;
  Extension* extension;
  int major, minor;
};

struct Metadata {
  std::size_t struct_size;
  ApiVersion version;
  std::uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Buffer {
  std::size_t struct_size;
  Extension* extension;
  DataType dtype;
  void* data;
  std::int64_t dimensions;
  std::int64_t* shape;
};

// Arguments, and likewise results.
struct Buffers {
  std::size_t struct_size;
  Extension* extension;
  std::int64_t size;
  ArgumentType* types;
  Buffer** buffers;
};

struct ByteSpan {
  const char* data;
  std::size_t size;
};

struct Scalar {
  DataType dtype;
  void* value;
};

struct Array {
  DataType dtype;
  std::size_t size;
  void* data;
};

struct Attributes {
  std::size_t struct_size;
  Extension* extension;
  std::int64_t size;
  AttributeType* types;
  ByteSpan** names;
  void** values;
};

struct CallFrame {
  std::size_t struct_size;
  Extension* extension;
  const Api* api;
  ExecutionContext* context;
  Stage stage;
  Buffers arguments, results;
  Attributes attributes;
};

struct ErrorCreateArguments {
  std::size_t struct_size;
  Extension* extension;
  const char* message;
  ErrorCode code;
};

struct DeviceOrdinalArguments {
  std::size_t struct_size;
  Extension* extension;
  ExecutionContext* context;
  std::int32_t ordinal;  // out
};

struct StreamArguments {
  std::size_t struct_size;
  Extension* extension;
  ExecutionContext* context;
  void* stream;  // out: on a GPU, a CUstream
};

struct Api {
  std::size_t struct_size;
  Extension* extension;
  ApiVersion version;
  void* internal;
  Error* (*create_error)(ErrorCreateArguments* arguments);
  void (*others_to_4[3])();
  Error* (*get_stream)(StreamArguments* arguments);
  void (*others_to_17[12])();
  Error* (*get_device_ordinal)(DeviceOrdinalArguments* arguments);
};

static_assert(offsetof(Api, create_error) == 48 && sizeof(Api) == 192);
static_assert(offsetof(Buffer, data) == 24 && offsetof(CallFrame, arguments) == 40);

}  // namespace hvd::ffi
