#include "ops/nccl/library.h"

#include "core/base/error.h"

namespace hvd::nccl {

namespace {

constexpr const char* kSoname = "libnccl.so.2";

DynamicLibrary open_nccl(const std::string& wanted) {
  try {
    if (!wanted.empty()) return DynamicLibrary::open(wanted);
    DynamicLibrary present = DynamicLibrary::loaded(kSoname);
    return present ? present : DynamicLibrary::open(kSoname);
  } catch (const Unsupported& error) {
    throw Unsupported(std::string("there is no NCCL: ") + error.what());
  }
}

Table functions_of(const DynamicLibrary& library) {
  Table table{};
  library.require(table.version, "ncclGetVersion");
  library.require(table.unique_id, "ncclGetUniqueId");
  library.require(table.error_text, "ncclGetErrorString");
  library.accept(table.last_error, "ncclGetLastError");
  library.require(table.init, "ncclCommInitRankConfig");
  library.require(table.async_error, "ncclCommGetAsyncError");
  library.require(table.finalize, "ncclCommFinalize");
  library.require(table.destroy, "ncclCommDestroy");
  library.require(table.abort, "ncclCommAbort");
  library.require(table.create_scaled_sum, "ncclRedOpCreatePreMulSum");
  library.require(table.destroy_op, "ncclRedOpDestroy");
  library.require(table.group_start, "ncclGroupStart");
  library.require(table.group_end, "ncclGroupEnd");
  library.require(table.allreduce, "ncclAllReduce");
  library.require(table.reduce, "ncclReduce");
  library.require(table.reducescatter, "ncclReduceScatter");
  library.require(table.broadcast, "ncclBroadcast");
  library.require(table.allgather, "ncclAllGather");
  library.require(table.send, "ncclSend");
  library.require(table.receive, "ncclRecv");
  return table;
}

}  // namespace

Library::Library(const std::string& wanted) : library_(open_nccl(wanted)), table_(functions_of(library_)) {
  check(table_.version(&version_), "ncclGetVersion");
  if (version_ >= kOldestVersion) return;
  throw Unsupported(describe() + " is too old: " + version_text(kOldestVersion) + " or later is needed");
}

std::string Library::describe() const {
  return "NCCL " + version_text(version_) + ", " + library_.file_of(reinterpret_cast<const void*>(table_.version));
}

void Library::check(Result result, const char* what, Handle communicator) const {
  if (result == Result::success || result == Result::in_progress) return;
  std::string text = std::string("NCCL: ") + what + ": " + table_.error_text(result);
  if (table_.last_error != nullptr) {
    const char* const last = table_.last_error(communicator);
    if (last != nullptr && *last != '\0') text += " (" + std::string(last) + ")";
  }
  if (result == Result::remote_error) throw PeerLost(text);
  if (result == Result::invalid_argument || result == Result::invalid_usage) throw Internal(text);
  throw Aborted(text);
}

std::string version_text(int version) {
  if (version < 10000) version = version / 1000 * 10000 + version % 1000;  // before 2.9 the minor number had one digit
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace hvd::nccl
