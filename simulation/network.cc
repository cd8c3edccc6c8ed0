#include "simulation/network.h"

#include "core/net/frame.h"

namespace hvd::simulation {

namespace {

constexpr std::size_t kSegmentBytes = 1448;      // of TCP with timestamps on Ethernet
constexpr std::size_t kSegmentHeaderBytes = 90;  // Ethernet with preamble and gap, IPv4, TCP
constexpr std::size_t kFrameKindBytes = 1;       // see ControlLinks

}  // namespace

Duration gap(const LinkParameters& link, std::size_t bytes) {
  return std::chrono::round<Duration>(
      std::chrono::duration<double, std::nano>(8.0 * static_cast<double>(bytes) / link.gbit));
}

std::size_t with_headers(std::size_t bytes) {
  const std::size_t framed = bytes + kFrameHeaderBytes + kFrameKindBytes;
  return framed + (framed + kSegmentBytes - 1) / kSegmentBytes * kSegmentHeaderBytes;
}

}  // namespace hvd::simulation
