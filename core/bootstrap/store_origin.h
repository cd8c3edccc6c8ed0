// Serves key-value requests of ranks. StoreOrigin owns the data of the job's one store, and parks gets until their key
// is set; launcher/remote/store_relay.h forwards what it does not know. Pure. Thread-compatible: each is used by its
// owner's event loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store_protocol.h"

namespace hvd {

inline constexpr std::size_t kMaxStoreBytes = std::size_t{1} << 30;

// The map behind every store: values that are set, counters that are added to, and bounds on both.
//
// Values and counters have separate name spaces. A value may be set again; earlier readers keep what they got.
class StoreTable {
 public:
  explicit StoreTable(std::size_t capacity_bytes = kMaxStoreBytes) : capacity_bytes_(capacity_bytes) {}

  // Throw InvalidArgument: key or value too long, store full, counter overflow. The table is unchanged then.
  void set(const std::string& key, std::string value) {
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
  std::int64_t add(const std::string& key, std::int64_t amount) {
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

  // Removes all values and counters whose keys begin so.
  void erase(std::string_view prefix) {
    std::erase_if(values_, [&](const auto& entry) {
      if (!entry.first.starts_with(prefix)) return false;
      used_bytes_ -= kEntryBytes + entry.first.size() + entry.second.size();
      return true;
    });
    std::erase_if(counters_, [&](const auto& entry) {
      if (!entry.first.starts_with(prefix)) return false;
      used_bytes_ -= kEntryBytes + entry.first.size();
      return true;
    });
  }

  // Null while the key was not set. Valid until the next call.
  const std::string* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

 private:
  // The approximate cost of an entry in addition to its text.
  static constexpr std::size_t kEntryBytes = 128;

  void reserve(const std::string& key, std::size_t freed, std::size_t needed) {
    if (used_bytes_ - freed + needed > capacity_bytes_) {
      throw InvalidArgument("the store is full (" + std::to_string(capacity_bytes_) + " bytes): no room for '" + key +
                            "'");
    }
    used_bytes_ += needed - freed;
  }

  std::size_t capacity_bytes_;
  std::size_t used_bytes_ = 0;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::int64_t> counters_;
};

class StoreSource {
 public:
  // The text is valid during the call. PeerLost: the store is lost for all ranks, permanently. May call ask() and
  // forget(), but must not destroy the source.
  using Answer = std::function<void(StatusCode code, std::string_view text)>;
  // Identifies a request that waits for its answer; 0: none.
  using RequestId = std::uint64_t;

  virtual ~StoreSource() = default;

  // Answers once: before it returns (0 then), or later. The request's own id is ignored.
  virtual RequestId ask(StoreRequest request, Answer answer) = 0;

  // Cancels the answer. A set or add takes effect nevertheless. No effect if the request was answered.
  virtual void forget(RequestId request_id) = 0;
};

// Gets whose key is missing, until the key is set or the get is cancelled.
class ParkedGets {
 public:
  using RequestId = StoreSource::RequestId;
  using Answer = StoreSource::Answer;

  // `request_id` must not have been used before.
  void park(RequestId request_id, const std::string& key, Answer answer) {
    waiting_.emplace(request_id, Get{.key = key, .answer = std::move(answer)});
    by_key_[key].push_back(request_id);
  }
  // No effect if it is not parked.
  void forget(RequestId request_id) {
    const auto get = waiting_.find(request_id);
    if (get == waiting_.end()) return;
    const auto request_ids = by_key_.find(get->second.key);
    std::erase(request_ids->second, request_id);
    if (request_ids->second.empty()) by_key_.erase(request_ids);
    waiting_.erase(get);
  }
  // Removes one of the gets that wait for the key, in the order of parking. One at a time: while it is answered, others
  // may be cancelled.
  std::optional<Answer> take(const std::string& key) {
    const auto request_ids = by_key_.find(key);
    if (request_ids == by_key_.end()) return std::nullopt;
    const RequestId request_id = request_ids->second.front();
    Answer answer = std::move(waiting_.at(request_id).answer);
    forget(request_id);
    return answer;
  }

  std::size_t size() const { return waiting_.size(); }

 private:
  struct Get {
    std::string key;
    Answer answer;
  };
  std::unordered_map<RequestId, Get> waiting_;
  std::unordered_map<std::string, std::vector<RequestId>> by_key_;  // none of them empty
};

// The job's one store.
class StoreOrigin : public StoreSource {
 public:
  explicit StoreOrigin(std::size_t capacity_bytes = kMaxStoreBytes) : table_(capacity_bytes) {}

  // Sets and adds are answered immediately.
  RequestId ask(StoreRequest request, Answer answer) override {
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
  void forget(RequestId request_id) override { parked_.forget(request_id); }

  // Removes what nobody will read again: all whose keys begin so.
  void erase(std::string_view prefix) { table_.erase(prefix); }

  std::size_t parked() const { return parked_.size(); }

 private:
  void set(StoreRequest request, const Answer& answer) {
    table_.set(request.key, std::move(request.value));
    answer(StatusCode::ok, "");
    while (const auto parked = parked_.take(request.key)) (*parked)(StatusCode::ok, *table_.find(request.key));
  }
  // Moves from `answer` only to park it.
  RequestId get(const std::string& key, Answer& answer) {
    check_store_key(key);
    if (const std::string* value = table_.find(key)) {
      answer(StatusCode::ok, *value);
      return 0;
    }
    parked_.park(++last_request_id_, key, std::move(answer));
    return last_request_id_;
  }

  StoreTable table_;
  ParkedGets parked_;
  RequestId last_request_id_ = 0;
};

// Tells ranks in the rendezvous, which have no connections yet that could break, that the job has failed: which rank,
// and how. Called by the owner of the store; see check_job_failure().
inline void set_job_failure(StoreSource& store, const std::string& cause) {
  store.ask({.operation = StoreOperation::set, .key = kJobFailureKey, .value = cause},
            [](StatusCode, std::string_view) {});
}

}  // namespace hvd
