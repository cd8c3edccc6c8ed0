// Gets whose key is missing, until somebody sets it or nobody wants it any more. Pure.
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

  // An identifier that was not used before.
  void park(RequestId request_id, const std::string& key, Answer answer);
  // Nothing happens if it is not parked.
  void forget(RequestId request_id);
  // One of those that wait for the key, in the order of parking, which is then parked no longer. One at a time: while
  // it is answered, others may be forgotten.
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
