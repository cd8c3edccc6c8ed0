#include "launcher/job/status_queries.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

StatusQueries::StatusQueries(EventLoop& loop, const std::vector<HostPlan>& plans,
                             const std::vector<std::unique_ptr<Host>>& hosts)
    : plans_(plans), hosts_(hosts), timer_(loop, [this] { on_time(); }) {}

void StatusQueries::ask(bool with_stacks, Done done) {
  const std::uint64_t question = ++last_question_;
  StatusQuery& query = open_[question];
  query.deadline = deadline_after(kStatusQueryTimeout);
  query.done = std::move(done);
  for (std::size_t host = 0; host < plans_.size(); ++host) {
    if (!lost_.contains(static_cast<int>(host))) query.missing.insert(static_cast<int>(host));
    for (const RankPlan& rank : plans_[host].ranks) {
      query.ranks.push_back({.rank = rank.place.rank, .host = plans_[host].name, .status = {}});
    }
  }
  std::sort(query.ranks.begin(), query.ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const std::set<int> asked = query.missing;  // a copy: the last answer erases the query
  if (asked.empty()) return finish(question);
  set_timer();
  for (const int host : asked) hosts_[static_cast<std::size_t>(host)]->query_status(question, with_stacks);
}

void StatusQueries::answered(int host, std::uint64_t question, std::vector<RankStatus> statuses) {
  const auto found = open_.find(question);
  if (found == open_.end() || found->second.missing.erase(host) == 0) return;
  std::set<int> ranks_there;
  for (const RankPlan& rank : plans_[static_cast<std::size_t>(host)].ranks) ranks_there.insert(rank.place.rank);
  for (RankStatus& status : statuses) {
    if (!ranks_there.contains(status.rank)) continue;
    StatusOfRank& entry = found->second.ranks[static_cast<std::size_t>(status.rank)];  // has ranks 0 to size - 1
    entry.status = std::move(status);
  }
  if (found->second.missing.empty()) finish(question);
}

void StatusQueries::host_lost(int host) {
  lost_.insert(host);
  std::vector<std::uint64_t> complete;
  for (auto& [question, query] : open_) {
    if (query.missing.erase(host) > 0 && query.missing.empty()) complete.push_back(question);
  }
  for (const std::uint64_t question : complete) finish(question);
}

void StatusQueries::finish(std::uint64_t question) {
  const auto found = open_.extract(question);
  set_timer();
  if (found) found.mapped().done(std::move(found.mapped().ranks));
}

void StatusQueries::on_time() {
  const TimePoint now = Clock::now();
  std::vector<std::uint64_t> late;
  for (const auto& [question, query] : open_) {
    if (now >= query.deadline) late.push_back(question);
  }
  for (const std::uint64_t question : late) finish(question);
  set_timer();
}

void StatusQueries::set_timer() {
  timer_.set(open_.empty() ? std::nullopt : std::optional(open_.begin()->second.deadline));
}

}  // namespace hvd::launcher
