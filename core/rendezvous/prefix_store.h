// A view of another store in which every key has a prefix: each membership epoch gets its own prefix.
#pragma once

#include <utility>

#include "core/rendezvous/store.h"

namespace hvd {

class PrefixStore : public Store {
 public:
  // `inner` must outlive this view.
  PrefixStore(Store& inner, std::string prefix) : inner_(inner), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  void check() override { inner_.check(); }

 private:
  Store& inner_;
  const std::string prefix_;
};

}  // namespace hvd
