#include "ops/algorithms/vote_exchange.h"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/execution/backend.h"

namespace hvd {

namespace {

// Distinct from the steps of the collective itself.
constexpr std::uint32_t kFirstStep = 0x80000000;

// The maximum number of late callbacks in one wait; a callback without effect is not repeated further.
constexpr int kMaxCalls = 100;

class TransportVoteExchange final : public VoteExchange {
 public:
  TransportVoteExchange(std::shared_ptr<Transport> transport, Duration timeout)
      : VoteExchange(timeout),
        transport_(std::move(transport)),
        members_(all_ranks(transport_->size())),
        messages_(members_.size()) {}

  std::byte* local_payload() override { return is_direct() ? own().payload.data() : nullptr; }
  const std::byte* payload(int rank) const override { return messages_[static_cast<std::size_t>(rank)].payload.data(); }

 private:
  // With more ranks, a message to each costs more than the rounds of a dissemination.
  static constexpr std::size_t kMaxDirect = 8;
  struct VoteMessage {
    Vote vote = Vote::ask;
    std::array<std::byte, 7> unused{};  // aligns the payload
    std::array<std::byte, kPayloadBytes> payload{};
  };

  bool is_direct() const { return members_.size() <= kMaxDirect; }
  VoteMessage& own() { return messages_[static_cast<std::size_t>(transport_->rank())]; }

  Vote exchange(Vote own, const Tag& tag) override {
    return is_direct() ? exchange_directly(own, tag) : disseminate(*transport_, members_, transport_->rank(), own, tag);
  }

  Vote exchange_directly(Vote vote, const Tag& tag) {
    static_assert(offsetof(VoteMessage, payload) == 8 && sizeof(VoteMessage) == 8 + kPayloadBytes &&
                  std::is_trivially_copyable_v<VoteMessage>);
    own().vote = vote;
    std::vector<Transport::RequestId> requests;
    for (const int peer : members_) {
      if (peer == transport_->rank()) continue;
      VoteMessage& message = messages_[static_cast<std::size_t>(peer)];
      requests.push_back(transport_->post_receive(peer, tag, std::as_writable_bytes(std::span(&message, 1))));
      requests.push_back(transport_->post_send(peer, tag, std::as_bytes(std::span(&own(), 1))));
    }
    for (const auto request : requests) await(*transport_, request);
    Vote combined = vote;
    for (const int peer : members_) {
      const Vote theirs = messages_[static_cast<std::size_t>(peer)].vote;
      check(theirs, peer);
      combined = std::max(combined, theirs);
    }
    return combined;
  }

  const std::shared_ptr<Transport> transport_;
  const std::vector<int> members_;
  std::vector<VoteMessage> messages_;  // by rank
};

}  // namespace

VoteExchange::VoteExchange(Duration timeout) : timeout_(timeout) {}

std::byte* VoteExchange::local_payload() { return nullptr; }

const std::byte* VoteExchange::payload(int /*rank*/) const { return nullptr; }

void VoteExchange::ask(const ProcessSet& set, std::uint32_t call_id) {
  if (exchange(set, call_id, Vote::ask) == Vote::decline) throw Declined();
}

void VoteExchange::decline(const ProcessSet& set, std::uint32_t call_id) { exchange(set, call_id, Vote::decline); }

void VoteExchange::set_late_callback(Duration timeout, const std::function<bool()>& late) {
  wait_timeout_ = std::min(timeout, timeout_);
  late_ = late;
}

VoteExchange::Vote VoteExchange::exchange(const ProcessSet& set, std::uint32_t call_id, Vote own) {
  calls_late_callback_ = own == Vote::ask && late_;
  return exchange(own, {.process_set = static_cast<std::uint32_t>(set.id), .step = kFirstStep, .sequence = call_id});
}

bool VoteExchange::call_late_callback() { return calls_late_callback_ = calls_late_callback_ && late_(); }

VoteExchange::Vote VoteExchange::disseminate(Transport& transport, std::span<const int> members, int position, Vote own,
                                             const Tag& first) {
  const std::size_t n = members.size();
  const auto self = static_cast<std::size_t>(position);
  Tag tag = first;
  Vote combined = own;
  for (std::size_t distance = 1; distance < n; distance *= 2, ++tag.step) {
    const int source = members[(self + n - distance) % n], target = members[(self + distance) % n];
    Vote incoming{};
    const Vote outgoing = combined;
    const auto received = transport.post_receive(source, tag, std::as_writable_bytes(std::span(&incoming, 1)));
    const auto sent = transport.post_send(target, tag, std::as_bytes(std::span(&outgoing, 1)));
    await(transport, received);
    await(transport, sent);
    check(incoming, source);
    combined = std::max(combined, incoming);
  }
  return combined;
}

void VoteExchange::check(Vote vote, int rank) {
  if (vote > Vote::decline) throw Internal("rank " + std::to_string(rank) + " neither asks nor declines");
}

void VoteExchange::await(Transport& transport, Transport::RequestId request) {
  for (int calls = 0; calls_late_callback_ && calls < kMaxCalls; ++calls) {
    if (transport.wait_until(request, deadline_after(wait_timeout_))) return;
    call_late_callback();
  }
  transport.wait(request, deadline_after(timeout_));
}

std::unique_ptr<VoteExchange> make_transport_vote_exchange(std::shared_ptr<Transport> transport, Duration timeout) {
  return std::make_unique<TransportVoteExchange>(std::move(transport), timeout);
}

}  // namespace hvd
