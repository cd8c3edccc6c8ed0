// A store for ranks that are threads of one process.
#pragma once

#include "core/base/mutex.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/store_table.h"

namespace hvd {

class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;

 private:
  Mutex mutex_;
  CondVar changed_;
  StoreTable table_ GUARDED_BY(mutex_);
};

}  // namespace hvd
