#include "ops/algorithms/word_exchange.h"

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
constexpr int kMostCalls = 100;

class TransportWords final : public WordExchange {
 public:
  TransportWords(std::shared_ptr<Transport> transport, Duration timeout)
      : WordExchange(timeout),
        transport_(std::move(transport)),
        members_(all_ranks(transport_->size())),
        said_(members_.size()) {}

  std::byte* local_note() override { return is_direct() ? own().note.data() : nullptr; }
  const std::byte* note(int rank) const override { return said_[static_cast<std::size_t>(rank)].note.data(); }

 private:
  // With more ranks, a message to each costs more than the rounds of a dissemination.
  static constexpr std::size_t kMostDirect = 8;
  struct Said {
    Word word = Word::asks;
    std::array<std::byte, 7> unused{};  // aligns the note
    std::array<std::byte, kNoteBytes> note{};
  };

  bool is_direct() const { return members_.size() <= kMostDirect; }
  Said& own() { return said_[static_cast<std::size_t>(transport_->rank())]; }

  Word exchange(Word own, const Tag& tag) override {
    return is_direct() ? tell_all(own, tag) : disseminate(*transport_, members_, transport_->rank(), own, tag);
  }

  Word tell_all(Word word, const Tag& tag) {
    static_assert(offsetof(Said, note) == 8 && sizeof(Said) == 8 + kNoteBytes && std::is_trivially_copyable_v<Said>);
    own().word = word;
    std::vector<Transport::RequestId> requests;
    for (const int peer : members_) {
      if (peer == transport_->rank()) continue;
      Said& said = said_[static_cast<std::size_t>(peer)];
      requests.push_back(transport_->post_receive(peer, tag, std::as_writable_bytes(std::span(&said, 1))));
      requests.push_back(transport_->post_send(peer, tag, std::as_bytes(std::span(&own(), 1))));
    }
    for (const auto request : requests) await(*transport_, request);
    Word strongest = word;
    for (const int peer : members_) {
      const Word said = said_[static_cast<std::size_t>(peer)].word;
      check(said, peer);
      strongest = std::max(strongest, said);
    }
    return strongest;
  }

  const std::shared_ptr<Transport> transport_;
  const std::vector<int> members_;
  std::vector<Said> said_;  // by rank
};

}  // namespace

void WordExchange::ask(const ProcessSet& set, std::uint32_t call_id) {
  if (exchange(set, call_id, Word::asks) == Word::declines) throw Declined();
}

void WordExchange::decline(const ProcessSet& set, std::uint32_t call_id) { exchange(set, call_id, Word::declines); }

void WordExchange::set_late_callback(Duration timeout, const std::function<bool()>& late) {
  wait_timeout_ = std::min(timeout, timeout_);
  late_ = late;
}

WordExchange::Word WordExchange::exchange(const ProcessSet& set, std::uint32_t call_id, Word own) {
  says_late_ = own == Word::asks && late_;
  return exchange(own, {.process_set = static_cast<std::uint32_t>(set.id), .step = kFirstStep, .sequence = call_id});
}

bool WordExchange::say_late() { return says_late_ = says_late_ && late_(); }

WordExchange::Word WordExchange::disseminate(Transport& transport, std::span<const int> members, int position, Word own,
                                             const Tag& first) {
  const std::size_t n = members.size();
  const auto self = static_cast<std::size_t>(position);
  Tag tag = first;
  Word heard = own;
  for (std::size_t distance = 1; distance < n; distance *= 2, ++tag.step) {
    const int source = members[(self + n - distance) % n], target = members[(self + distance) % n];
    Word incoming{};
    const Word outgoing = heard;
    const auto received = transport.post_receive(source, tag, std::as_writable_bytes(std::span(&incoming, 1)));
    const auto sent = transport.post_send(target, tag, std::as_bytes(std::span(&outgoing, 1)));
    await(transport, received);
    await(transport, sent);
    check(incoming, source);
    heard = std::max(heard, incoming);
  }
  return heard;
}

void WordExchange::check(Word word, int rank) {
  if (word > Word::declines) throw Internal("rank " + std::to_string(rank) + " neither asks nor declines");
}

void WordExchange::await(Transport& transport, Transport::RequestId request) {
  for (int calls = 0; says_late_ && calls < kMostCalls; ++calls) {
    if (transport.wait_until(request, deadline_after(wait_timeout_))) return;
    say_late();
  }
  transport.wait(request, deadline_after(timeout_));
}

std::unique_ptr<WordExchange> make_transport_words(std::shared_ptr<Transport> transport, Duration timeout) {
  return std::make_unique<TransportWords>(std::move(transport), timeout);
}

}  // namespace hvd
