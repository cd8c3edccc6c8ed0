#include "ops/algorithms/pairwise_alltoall.h"

#include <algorithm>
#include <deque>

namespace hvd {

namespace {

constexpr std::size_t kStepsInFlight = 4;

template <typename Byte>
std::span<Byte> block(Byte* buffer, std::span<const std::int64_t> bounds, std::size_t index) {
  const std::int64_t begin = bounds[index];
  const std::int64_t size = bounds[index + 1] - begin;
  return size == 0 ? std::span<Byte>{} : std::span<Byte>(buffer + begin, static_cast<std::size_t>(size));
}

}  // namespace

void pairwise_alltoall(Transport& transport, std::span<const int> members, int position, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds, Tag tag, Deadline deadline) {
  const std::size_t n = members.size();
  const auto own_index = static_cast<std::size_t>(position);
  const auto own = block(input, input_bounds, own_index);
  std::copy(own.begin(), own.end(), block(output, output_bounds, own_index).begin());

  std::deque<Transport::Ticket> pending;
  for (std::size_t step = 1; step < n; ++step, ++tag.step) {
    const std::size_t source = (own_index + n - step) % n;
    const std::size_t target = (own_index + step) % n;
    const auto incoming = block(output, output_bounds, source);
    const auto outgoing = block(input, input_bounds, target);
    if (!incoming.empty()) pending.push_back(transport.post_receive(members[source], tag, incoming));
    if (!outgoing.empty()) pending.push_back(transport.post_send(members[target], tag, outgoing));
    for (; pending.size() > 2 * (kStepsInFlight - 1); pending.pop_front()) transport.wait(pending.front(), deadline);
  }
  for (const auto ticket : pending) transport.wait(ticket, deadline);
}

}  // namespace hvd
