// Computes the GPUs that each rank of a host may see (--gpus-per-rank); without that option CUDA_VISIBLE_DEVICES is
// left unchanged. Pure, except for count_gpus().
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

// --gpus-per-rank.
struct GpusPerRank {
  std::optional<int> number;  // empty: all GPUs of the host, divided evenly ("auto")
  bool operator==(const GpusPerRank&) const = default;
};

// "auto" (MPICH writes AUTO) or a number; throws InvalidArgument.
GpusPerRank parse_gpus_per_rank(const std::string& text);

// Returns the indices of a rank's GPUs among those of its host. When GPUs are divided evenly, ranks share them if there
// are fewer GPUs than ranks; empty if the host has none. Throws InvalidArgument if a number is requested and there are
// too few; `host` is used in its text.
std::vector<int> gpus_of_rank(const GpusPerRank& rule, int local_rank, int local_size, int gpus_on_host,
                              const std::string& host);

// The value of CUDA_VISIBLE_DEVICES for a rank: the devices at these indices of the host's own value; empty: no GPUs.
std::string visible_devices(const std::vector<int>& gpus, const std::optional<std::string>& own_value);

// How many GPUs a process of this host sees. Does not call CUDA: `driver` is the folder in which its driver lists them.
int count_gpus(const std::optional<std::string>& visible, const std::string& driver = "/proc/driver/nvidia/gpus");

}  // namespace hvd::launcher
