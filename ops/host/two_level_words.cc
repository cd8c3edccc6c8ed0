#include "ops/host/two_level_words.h"

#include <algorithm>
#include <utility>

namespace hvd {

TwoLevelWords::TwoLevelWords(std::shared_ptr<HostCommunicator> group, std::shared_ptr<Transport> transport,
                             const Topology& topology, Duration timeout)
    : WordExchange(timeout), group_(std::move(group)), transport_(std::move(transport)), host_(topology.host()) {
  for (const auto& ranks : topology.hosts) leaders_.push_back(ranks.front());
}

void TwoLevelWords::set_late_callback(Duration timeout, const std::function<bool()>& late) {
  WordExchange::set_late_callback(timeout, late);
  group_->set_late_callback(timeout, [this] { return say_late(); });
}

WordExchange::Word TwoLevelWords::exchange(Word own, const Tag& tag) {
  const std::vector<Word> words = tell_host(own, tag);
  Word word = *std::max_element(words.begin(), words.end());
  if (group_->rank() == 0) word = disseminate(*transport_, leaders_, host_, word, tag);
  return tell_host(word, tag).front();
}

std::vector<WordExchange::Word> TwoLevelWords::tell_host(Word word, const Tag& tag) {
  std::vector<Word> words;
  group_->enter(Entry::asking, static_cast<std::uint32_t>(tag.sequence));
  for (const std::byte told : group_->exchange_words(static_cast<std::byte>(word))) {
    words.push_back(told == std::byte{} ? Word::asks : Word::declines);
  }
  return words;
}

}  // namespace hvd
