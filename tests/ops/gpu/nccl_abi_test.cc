// Compares ops/gpu/nccl_library.h with NCCL's nccl.h: whoever compiles this has tested it.
#include "ops/gpu/nccl_library.h"

#include HVD_VENDOR_HEADER

#include <cstddef>
#include <iterator>

#include "tests/support/same_abi.h"

namespace hvd::testing {

namespace {

// NCCL's configuration has grown at its end: it is passed by address, and says itself how long it is.
using Words =
    Glossary<Word<ncclResult_t, nccl::Result>, Word<ncclDataType_t, nccl::Type>, Word<ncclRedOp_t, nccl::Op>,
             Word<ncclUniqueId, nccl::UniqueId>, Word<ncclComm_t, nccl::Handle>, Word<ncclConfig_t*, nccl::Config*>,
             Word<ncclScalarResidence_t, int>, Word<cudaStream_t, cuda::Stream>>;

static_assert(NCCL_VERSION_CODE >= nccl::kOldestVersion);

#define HVD_SAME(member, symbol) same_abi<Words, decltype(symbol), std::remove_pointer_t<decltype(nccl::member)>>
constexpr bool kSame[] = {
    HVD_SAME(Table::version, ncclGetVersion),
    HVD_SAME(Table::unique_id, ncclGetUniqueId),
    HVD_SAME(Table::error_text, ncclGetErrorString),
    HVD_SAME(Table::last_error, ncclGetLastError),
    HVD_SAME(CommunicatorFunctions::init, ncclCommInitRankConfig),
    HVD_SAME(CommunicatorFunctions::async_error, ncclCommGetAsyncError),
    HVD_SAME(CommunicatorFunctions::finalize, ncclCommFinalize),
    HVD_SAME(CommunicatorFunctions::destroy, ncclCommDestroy),
    HVD_SAME(CommunicatorFunctions::abort, ncclCommAbort),
    HVD_SAME(CommunicatorFunctions::create_scaled_sum, ncclRedOpCreatePreMulSum),
    HVD_SAME(CommunicatorFunctions::destroy_op, ncclRedOpDestroy),
#if NCCL_VERSION_CODE >= 21900
    HVD_SAME(CommunicatorFunctions::register_memory, ncclCommRegister),
    HVD_SAME(CommunicatorFunctions::deregister, ncclCommDeregister),
#endif
    HVD_SAME(Table::group_start, ncclGroupStart),
    HVD_SAME(Table::group_end, ncclGroupEnd),
    HVD_SAME(CollectiveFunctions::allreduce, ncclAllReduce),
    HVD_SAME(CollectiveFunctions::reduce, ncclReduce),
    HVD_SAME(CollectiveFunctions::reducescatter, ncclReduceScatter),
    HVD_SAME(CollectiveFunctions::broadcast, ncclBroadcast),
    HVD_SAME(CollectiveFunctions::allgather, ncclAllGather),
    HVD_SAME(CollectiveFunctions::send, ncclSend),
    HVD_SAME(CollectiveFunctions::receive, ncclRecv),
};
#undef HVD_SAME
constexpr std::size_t differing_function() {
  for (std::size_t i = 0; i < std::size(kSame); ++i) {
    if (!kSame[i]) return i + 1;
  }
  return 0;
}
static_assert(differing_function() == 0, "a function, of this number in the list, has another signature");
// Each of the table's three parts has a reference to the library besides its functions.
static_assert(std::size(kSame) == sizeof(nccl::Table) / sizeof(void (*)()) - 3, "a function is not compared");

#define HVD_SAME_PLACE(ours, theirs)                                 \
  (offsetof(nccl::Config, ours) == offsetof(ncclConfig_t, theirs) && \
   std::is_same_v<decltype(nccl::Config::ours), decltype(ncclConfig_t::theirs)>)
static_assert(HVD_SAME_PLACE(size, size) && HVD_SAME_PLACE(magic, magic) && HVD_SAME_PLACE(version, version) &&
              HVD_SAME_PLACE(blocking, blocking) && HVD_SAME_PLACE(cga_cluster_size, cgaClusterSize) &&
              HVD_SAME_PLACE(min_ctas, minCTAs) && HVD_SAME_PLACE(max_ctas, maxCTAs) &&
              HVD_SAME_PLACE(net_name, netName) && HVD_SAME_PLACE(split_share, splitShare));
#undef HVD_SAME_PLACE
constexpr ncclConfig_t kInitial = NCCL_CONFIG_INITIALIZER;
static_assert(kInitial.magic == nccl::Config{}.magic && NCCL_CONFIG_UNDEF_INT == nccl::Config{}.min_ctas &&
              NCCL_CONFIG_UNDEF_PTR == nccl::Config{}.net_name);
static_assert(NCCL_UNIQUE_ID_BYTES == sizeof(nccl::UniqueId::bytes));

template <typename Theirs, typename Ours>
constexpr bool same_number(Theirs theirs, Ours ours) {
  return static_cast<int>(theirs) == static_cast<int>(ours);
}
static_assert(same_number(ncclSuccess, nccl::Result::success) &&
              same_number(ncclUnhandledCudaError, nccl::Result::unhandled_cuda_error) &&
              same_number(ncclSystemError, nccl::Result::system_error) &&
              same_number(ncclInternalError, nccl::Result::internal_error) &&
              same_number(ncclInvalidArgument, nccl::Result::invalid_argument) &&
              same_number(ncclInvalidUsage, nccl::Result::invalid_usage) &&
              same_number(ncclRemoteError, nccl::Result::remote_error) &&
              same_number(ncclInProgress, nccl::Result::in_progress));
static_assert(same_number(ncclInt8, nccl::Type::int8) && same_number(ncclUint8, nccl::Type::uint8) &&
              same_number(ncclInt32, nccl::Type::int32) && same_number(ncclInt64, nccl::Type::int64) &&
              same_number(ncclFloat16, nccl::Type::float16) && same_number(ncclFloat32, nccl::Type::float32) &&
              same_number(ncclFloat64, nccl::Type::float64) && same_number(ncclBfloat16, nccl::Type::bfloat16));
static_assert(same_number(ncclSum, nccl::Op::sum) && same_number(ncclProd, nccl::Op::product) &&
              same_number(ncclMax, nccl::Op::max) && same_number(ncclMin, nccl::Op::min) &&
              same_number(ncclAvg, nccl::Op::average));
static_assert(same_number(ncclScalarHostImmediate, nccl::kScalarOnHost));

}  // namespace

}  // namespace hvd::testing
