#include "core/rendezvous/prefix_store.h"

namespace hvd {

void PrefixStore::set(const std::string& key, const std::string& value) { inner_.set(prefix_ + key, value); }

std::string PrefixStore::get(const std::string& key, Deadline deadline) { return inner_.get(prefix_ + key, deadline); }

std::int64_t PrefixStore::add(const std::string& key, std::int64_t amount) { return inner_.add(prefix_ + key, amount); }

}  // namespace hvd
