#include "bindings/tensorflow/place_kernels.h"

#include <algorithm>
#include <cstring>

#include "bindings/tensorflow/collective_kernel.h"
#include "bindings/tensorflow/handles.h"
#include "hvd.h"

namespace hvd::tf {

namespace {

struct PlaceKernel {
  Place place;
  std::int32_t process_set = HVD_GLOBAL_PROCESS_SET;  // of rank, size and included
};

bool concerns_process_set(Place place) {
  return place == Place::rank || place == Place::size || place == Place::included;
}

hvd_status look_up(const PlaceKernel& kernel, std::int32_t& value) {
  hvd_topology topology = HVD_TOPOLOGY_INIT;
  if (const hvd_status status = hvd_get_topology(&topology); status != HVD_OK) return status;
  switch (kernel.place) {
    case Place::local_rank: value = topology.local_rank; return HVD_OK;
    case Place::local_size: value = topology.local_size; return HVD_OK;
    default: break;
  }
  const std::int32_t* ranks = nullptr;
  std::size_t count = 0;
  const hvd_status status = hvd_get_process_set(kernel.process_set, &ranks, &count);
  if (status != HVD_OK) return status;
  const auto* const own = std::find(ranks, ranks + count, topology.rank);
  const bool included = own != ranks + count;
  switch (kernel.place) {
    case Place::rank: value = included ? static_cast<std::int32_t>(own - ranks) : -1; break;
    case Place::size: value = static_cast<std::int32_t>(count); break;
    default: value = included ? 1 : 0; break;
  }
  return HVD_OK;
}

}  // namespace

void* create_place_kernel(Place place, OpKernelConstruction* construction) {
  PlaceKernel kernel{.place = place};
  if (concerns_process_set(place)) {
    const OwnedStatus status;
    std::int64_t process_set = 0;
    api().OpKernelConstruction_GetAttrInt64(construction, "process_set", &process_set, status.get());
    if (!status.ok()) {
      api().OpKernelConstruction_Failure(construction, status.get());
      return nullptr;
    }
    kernel.process_set = static_cast<std::int32_t>(process_set);
  }
  return new PlaceKernel(kernel);
}

void run_place_kernel(void* kernel, OpKernelContext* context) {
  std::int32_t value = 0;
  const hvd_status found = look_up(*static_cast<const PlaceKernel*>(kernel), value);
  if (found != HVD_OK) {
    const Code code = found == HVD_NOT_INITIALIZED ? Code::failed_precondition : code_of(found);
    const OwnedStatus status(code, std::string("hvd: ") + hvd_last_error());
    return api().OpKernelContext_Failure(context, status.get());
  }
  const OwnedStatus status;
  const OwnedTensor output(api().AllocateOutput(context, 0, DataType::int32, nullptr, 0, sizeof value, status.get()));
  if (!status.ok()) return api().OpKernelContext_Failure(context, status.get());
  std::memcpy(api().TensorData(output.get()), &value, sizeof value);
}

void delete_place_kernel(void* kernel) { delete static_cast<PlaceKernel*>(kernel); }

}  // namespace hvd::tf
