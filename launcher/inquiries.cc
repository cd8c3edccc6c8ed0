#include "launcher/inquiries.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

Inquiries::Inquiries(EventLoop& loop, const std::vector<HostPlan>& plans,
                     const std::vector<std::unique_ptr<Host>>& hosts)
    : plans_(plans), hosts_(hosts), timer_(loop, [this] { on_time(); }) {}

void Inquiries::ask(bool with_stacks, Done done) {
  const std::uint64_t question = ++last_question_;
  Inquiry& inquiry = open_[question];
  inquiry.deadline = deadline_after(kInquiryTime);
  inquiry.done = std::move(done);
  for (std::size_t host = 0; host < plans_.size(); ++host) {
    if (!lost_.contains(static_cast<int>(host))) inquiry.missing.insert(static_cast<int>(host));
    for (const RankPlan& rank : plans_[host].ranks) {
      inquiry.ranks.push_back({.rank = rank.place.rank, .host = plans_[host].name, .standing = {}});
    }
  }
  std::sort(inquiry.ranks.begin(), inquiry.ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const std::set<int> asked = inquiry.missing;  // the inquiry is gone when the last has answered
  if (asked.empty()) return finish(question);
  set_timer();
  for (const int host : asked) hosts_[static_cast<std::size_t>(host)]->ask_standings(question, with_stacks);
}

void Inquiries::answered(int host, std::uint64_t question, std::vector<Standing> standings) {
  const auto found = open_.find(question);
  if (found == open_.end() || found->second.missing.erase(host) == 0) return;
  std::set<int> ranks_there;
  for (const RankPlan& rank : plans_[static_cast<std::size_t>(host)].ranks) ranks_there.insert(rank.place.rank);
  for (Standing& standing : standings) {
    if (!ranks_there.contains(standing.rank)) continue;
    RankStanding& entry =
        found->second.ranks[static_cast<std::size_t>(standing.rank)];  // all of 0 to size - 1 are there
    entry.standing = std::move(standing);
  }
  if (found->second.missing.empty()) finish(question);
}

void Inquiries::host_lost(int host) {
  lost_.insert(host);
  std::vector<std::uint64_t> complete;
  for (auto& [question, inquiry] : open_) {
    if (inquiry.missing.erase(host) > 0 && inquiry.missing.empty()) complete.push_back(question);
  }
  for (const std::uint64_t question : complete) finish(question);
}

void Inquiries::finish(std::uint64_t question) {
  const auto found = open_.extract(question);
  set_timer();
  if (found) found.mapped().done(std::move(found.mapped().ranks));
}

void Inquiries::on_time() {
  const TimePoint now = Clock::now();
  std::vector<std::uint64_t> late;
  for (const auto& [question, inquiry] : open_) {
    if (now >= inquiry.deadline) late.push_back(question);
  }
  for (const std::uint64_t question : late) finish(question);
  set_timer();
}

void Inquiries::set_timer() {
  timer_.set(open_.empty() ? std::nullopt : std::optional(open_.begin()->second.deadline));
}

}  // namespace hvd::launcher
