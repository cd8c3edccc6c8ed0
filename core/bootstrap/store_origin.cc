#include "core/bootstrap/store_origin.h"

#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

// The approximate cost of an entry in addition to its text.
constexpr std::size_t kEntryBytes = 128;

}  // namespace

void StoreTable::reserve(const std::string& key, std::size_t freed, std::size_t needed) {
  if (used_bytes_ - freed + needed > capacity_bytes_) {
    throw InvalidArgument("the store is full (" + std::to_string(capacity_bytes_) + " bytes): no room for '" + key +
                          "'");
  }
  used_bytes_ += needed - freed;
}

void StoreTable::set(const std::string& key, std::string value) {
  check_store_key(key);
  check_store_value(key, value);
  const auto found = values_.find(key);
  if (found != values_.end()) {
    reserve(key, found->second.size(), value.size());
    found->second = std::move(value);
  } else {
    reserve(key, 0, kEntryBytes + key.size() + value.size());
    values_.emplace(key, std::move(value));
  }
}

std::int64_t StoreTable::add(const std::string& key, std::int64_t amount) {
  check_store_key(key);
  auto found = counters_.find(key);
  if (found == counters_.end()) {
    reserve(key, 0, kEntryBytes + key.size());
    found = counters_.emplace(key, 0).first;
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(found->second, amount, &sum)) {
    throw InvalidArgument("the store's counter '" + key + "' would overflow");
  }
  return found->second = sum;
}

const std::string* StoreTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void ParkedGets::park(RequestId request_id, const std::string& key, Answer answer) {
  waiting_.emplace(request_id, Get{.key = key, .answer = std::move(answer)});
  by_key_[key].push_back(request_id);
}

void ParkedGets::forget(RequestId request_id) {
  const auto get = waiting_.find(request_id);
  if (get == waiting_.end()) return;
  const auto request_ids = by_key_.find(get->second.key);
  std::erase(request_ids->second, request_id);
  if (request_ids->second.empty()) by_key_.erase(request_ids);
  waiting_.erase(get);
}

std::optional<ParkedGets::Answer> ParkedGets::take(const std::string& key) {
  const auto request_ids = by_key_.find(key);
  if (request_ids == by_key_.end()) return std::nullopt;
  const RequestId request_id = request_ids->second.front();
  Answer answer = std::move(waiting_.at(request_id).answer);
  forget(request_id);
  return answer;
}

StoreSource::RequestId StoreOrigin::ask(StoreRequest request, Answer answer) {
  try {
    switch (request.operation) {
      case StoreOperation::set: set(std::move(request), answer); return 0;
      case StoreOperation::get: return get(request.key, answer);
      case StoreOperation::add: {
        const std::string sum = std::to_string(table_.add(request.key, request.amount));
        answer(StatusCode::ok, sum);
        return 0;
      }
    }
  } catch (const InvalidArgument& error) {
    answer(error.code(), error.what());
  }
  return 0;
}

void StoreOrigin::set(StoreRequest request, const Answer& answer) {
  table_.set(request.key, std::move(request.value));
  answer(StatusCode::ok, "");
  while (const auto parked = parked_.take(request.key)) (*parked)(StatusCode::ok, *table_.find(request.key));
}

StoreSource::RequestId StoreOrigin::get(const std::string& key, Answer& answer) {
  check_store_key(key);
  if (const std::string* value = table_.find(key)) {
    answer(StatusCode::ok, *value);
    return 0;
  }
  parked_.park(++last_request_id_, key, std::move(answer));
  return last_request_id_;
}

void set_job_failure(StoreSource& store, const std::string& cause) {
  store.ask({.operation = StoreOperation::set, .key = kJobFailureKey, .value = cause},
            [](StatusCode, std::string_view) {});
}

}  // namespace hvd
