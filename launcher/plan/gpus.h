// Which GPUs each rank of a host may see, if it is asked for: CUDA_VISIBLE_DEVICES is left alone otherwise. Pure, but
// for counting them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

// --gpus-per-rank.
struct GpusPerRank {
  std::optional<int> number;  // empty: all of the host, divided evenly ("auto")
  bool operator==(const GpusPerRank&) const = default;
};

// "auto" (MPICH writes AUTO) or a number; throws InvalidArgument.
GpusPerRank parse_gpus_per_rank(const std::string& text);

// The places, from 0, of a rank's GPUs among those of its host. Divided evenly, ranks share GPUs where there are fewer
// of these, and there are none where the host has none. Throws InvalidArgument if a number is asked for and there are
// too few; the host's name is for its text.
std::vector<int> gpus_of_rank(const GpusPerRank& rule, int local_rank, int local_size, int gpus_on_host,
                              const std::string& host);

// The value of CUDA_VISIBLE_DEVICES for a rank: of those places in what the host's own value lists; empty: it has none.
std::string visible_devices(const std::vector<int>& gpus, const std::optional<std::string>& own_value);

// How many GPUs a process of this host sees. Nothing of CUDA is asked: `driver` is where its driver lists them.
int count_gpus(const std::optional<std::string>& visible, const std::string& driver = "/proc/driver/nvidia/gpus");

}  // namespace hvd::launcher
