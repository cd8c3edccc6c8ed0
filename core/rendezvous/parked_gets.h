// Gets whose key is missing, until the key is set or the get is cancelled. Pure.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/rendezvous/store_source.h"

namespace hvd {

class ParkedGets {
 public:
  using RequestId = StoreSource::RequestId;
  using Answer = StoreSource::Answer;

  // `request_id` must not have been used before.
  void park(RequestId request_id, const std::string& key, Answer answer);
  // No effect if it is not parked.
  void forget(RequestId request_id);
  // Removes one of the gets that wait for the key, in the order of parking. One at a time: while it is answered, others
  // may be cancelled.
  std::optional<Answer> take(const std::string& key);

  std::size_t size() const { return waiting_.size(); }

 private:
  struct Get {
    std::string key;
    Answer answer;
  };
  std::unordered_map<RequestId, Get> waiting_;
  std::unordered_map<std::string, std::vector<RequestId>> by_key_;  // none of them empty
};

}  // namespace hvd
