// Converts a request to the flight recorder's format.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include "core/flight/flight_recorder.h"
#include "core/operation/request.h"

namespace hvd {

inline FlightWords describe(const Request& request) {
  constexpr std::size_t kMany = std::numeric_limits<std::uint8_t>::max();
  FlightOperation operation;
  operation.process_set = request.process_set;
  operation.collective = static_cast<std::uint8_t>(request.collective);
  operation.tensors = static_cast<std::uint8_t>(std::min(request.tensors.size(), kMany));
  operation.bytes = bytes_of(request);
  if (!request.tensors.empty()) {
    const TensorSpec& tensor = request.tensors.front();
    operation.dtype = static_cast<std::uint8_t>(tensor.dtype);
    operation.dimensions = static_cast<std::uint8_t>(std::min(tensor.shape.size(), kMany));
    for (std::size_t i = 0; i < std::min(tensor.shape.size(), operation.shape.size()); ++i) {
      constexpr std::int64_t kLongest = std::numeric_limits<std::uint32_t>::max();
      operation.shape[i] = static_cast<std::uint32_t>(std::min(tensor.shape[i], kLongest));
    }
  }
  put_short_name(request.name, operation.name.data(), operation.name.size());
  return std::bit_cast<FlightWords>(operation);
}

}  // namespace hvd
