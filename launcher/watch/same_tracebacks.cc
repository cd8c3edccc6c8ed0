#include "launcher/watch/same_tracebacks.h"

#include <algorithm>

#include "launcher/watch/job_end.h"

namespace hvd::launcher {
namespace {

bool begins(std::string_view line) { return line == "Traceback (most recent call last):\n"; }

// Whether a line may be part of a traceback, or between the tracebacks of chained exceptions.
bool continues(std::string_view line) {
  return line == "\n" || line.starts_with(' ') || begins(line) ||
         line.starts_with("During handling of the above exc") ||
         line.starts_with("The above exception was the direct cause");
}

}  // namespace

std::string SameTracebacks::feed(int rank, std::string_view lines, TimePoint now) {
  std::string shown;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    feed_line(rank, lines.substr(0, end), now, shown);
    lines.remove_prefix(end);
  }
  return shown;
}

void SameTracebacks::feed_line(int rank, std::string_view line, TimePoint now, std::string& shown) {
  const auto found = open_.find(rank);
  const bool is_open = found != open_.end();
  const bool is_more = is_open && (!found->second.is_complete || continues(line));
  if (!is_more && !begins(line)) {
    if (is_open) close(rank, now);
    show_of(rank, shown);
    shown += line;
    return;
  }
  Open& open = open_[rank];
  open.text += line;
  open.is_complete = !continues(line);  // the line of the exception itself is not indented
  open.deadline = now + kHoldTime;
  if (open.text.size() <= kLongest) return;
  show_of(rank, shown);
  shown += open.text;
  open_.erase(rank);
}

// The rank's traceback is complete: merges it with an identical one.
void SameTracebacks::close(int rank, TimePoint now) {
  std::string text = std::move(open_.at(rank).text);
  open_.erase(rank);
  const auto same = std::find_if(told_.begin(), told_.end(), [&](const Told& told) { return told.text == text; });
  if (same == told_.end()) {
    told_.push_back({.text = std::move(text), .ranks = {rank}, .deadline = now + kHoldTime});
  } else {
    same->ranks.push_back(rank);
  }
}

// Shows the rank's held-back tracebacks before its next output, so that the output stays in order.
void SameTracebacks::show_of(int rank, std::string& shown) {
  std::erase_if(told_, [&](const Told& told) {
    const bool is_its_own = std::find(told.ranks.begin(), told.ranks.end(), rank) != told.ranks.end();
    if (is_its_own) show(told, shown);
    return is_its_own;
  });
}

void SameTracebacks::show(const Told& told, std::string& shown) {
  std::vector<int> ranks = told.ranks;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (ranks.size() > 1) shown += "hvdrun: the same of " + list_ranks(ranks) + ":\n";
  shown += told.text;
}

std::optional<Deadline> SameTracebacks::next_deadline() const {
  std::optional<Deadline> next;
  const auto consider = [&](Deadline deadline) { next = next ? std::min(*next, deadline) : deadline; };
  for (const auto& [rank, open] : open_) consider(open.deadline);
  for (const Told& told : told_) consider(told.deadline);
  return next;
}

std::string SameTracebacks::due(TimePoint now) {
  std::vector<int> ended;
  for (const auto& [rank, open] : open_) {
    if (now >= open.deadline) ended.push_back(rank);
  }
  for (const int rank : ended) close(rank, now - kHoldTime);  // the hold time has passed already
  std::string shown;
  std::erase_if(told_, [&](const Told& told) {
    if (now >= told.deadline) show(told, shown);
    return now >= told.deadline;
  });
  return shown;
}

std::string SameTracebacks::rest() {
  std::vector<int> ranks;
  for (const auto& [rank, open] : open_) ranks.push_back(rank);
  for (const int rank : ranks) close(rank, TimePoint());
  return due(TimePoint::max());
}

}  // namespace hvd::launcher
