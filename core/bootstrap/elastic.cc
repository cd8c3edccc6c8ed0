#include "core/bootstrap/elastic.h"

#include <sstream>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr Duration kAskPeriod = 50ms;
constexpr Duration kAnswerTimeout = 20ms;
constexpr std::int64_t kMaxStarting = 1'000'000;

}  // namespace

std::string encode_place(const EpochPlace& place) {
  return std::to_string(place.epoch) + " " + std::to_string(place.rank) + " " + std::to_string(place.size) + " " +
         (place.has_newcomers ? "1" : "0");
}

EpochPlace parse_place(std::string_view text) {
  std::istringstream words{std::string(text)};
  EpochPlace place;
  const bool complete(words >> place.epoch >> place.rank >> place.size >> place.has_newcomers);
  if (complete && place.epoch >= 0 && place.rank >= 0 && place.rank < place.size) return place;
  throw Internal("'" + std::string(text) + "' is no place in an epoch of an elastic job");
}

std::string encode_expected_rank(const ExpectedRank& expected_rank) {
  std::ostringstream text;
  text << expected_rank.size << " " << expected_rank.local_rank << " " << expected_rank.local_size << " "
       << expected_rank.cross_rank << " " << expected_rank.cross_size;
  return text.str();
}

ExpectedRank parse_expected_rank(std::string_view text) {
  std::istringstream words{std::string(text)};
  ExpectedRank found;
  const bool complete(words >> found.size >> found.local_rank >> found.local_size >> found.cross_rank >>
                      found.cross_size);
  const auto holds = [](int rank, int size) { return 0 <= rank && rank < size; };
  if (complete && found.size >= 0 && holds(found.local_rank, found.local_size) &&
      holds(found.cross_rank, found.cross_size)) {
    return found;
  }
  throw Internal("'" + std::string(text) + "' is no place that a newcomer of an elastic job can have");
}

std::optional<ExpectedRank> ask_expected_rank(const Store& store, int process, Deadline deadline) {
  store.add(stands_by_key(process), 1);
  const ExpectedRank expected_rank = parse_expected_rank(store.get(expected_rank_key(process), deadline));
  return expected_rank.size > 0 ? std::optional(expected_rank) : std::nullopt;
}

EpochMember::EpochMember(Store store, int process) : store_(std::move(store)), process_(process) {
  const std::int64_t arrival = store_.add(arrived_key(process), 1);
  place_ = parse_place(store_.get(place_key(process, arrival), Deadline::max()));
  if (place_.epoch > 0) return;
  throw Error(StatusCode::shut_down,
              "process " + std::to_string(process) + " has no place in the elastic job any more");
}

Store EpochMember::store_of_epoch() const {
  const auto check = [store = store_, key = broken_key(place_.epoch)] {
    throw_cause_at(store, key, deadline_after(kAnswerTimeout));
  };
  return store_.with_prefix(epoch_prefix(place_.epoch)).with_alarm(check);
}

void EpochMember::report_failing(const std::string& cause) const {
  try {
    store_.set(failing_key(process_), cause);
  } catch (const Error&) {  // its end says so
  }
}

void EpochMember::report_unreachable(int rank) const {
  try {
    store_.add(unreachable_key(process_), rank + 1);
  } catch (const Error&) {  // the next arrival says so
  }
}

MembershipChange EpochMember::change() {
  const TimePoint now = Clock::now();
  if (change_ != MembershipChange::none || now < asked_.load() + kAskPeriod) return change_;
  asked_ = now;
  try {
    const std::int64_t sum = store_.add(change_key(place_.epoch), 0);
    if (sum < 0 || sum > kMaxStarting * kOneStarting) return change_;
    change_ = static_cast<MembershipChange>(sum % kOneStarting);
    starting_ = static_cast<int>(sum / kOneStarting);
  } catch (const Error&) {  // the store is gone, which the launcher's end explains
  }
  return change_;
}

}  // namespace hvd
