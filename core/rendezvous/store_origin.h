// The job's one store: owns the values, and the gets that wait for a key. Pure.
#pragma once

#include <string>

#include "core/rendezvous/parked_gets.h"
#include "core/rendezvous/store_source.h"
#include "core/rendezvous/store_table.h"

namespace hvd {

class StoreOrigin : public StoreSource {
 public:
  explicit StoreOrigin(std::size_t capacity_bytes = kMaxStoreBytes) : table_(capacity_bytes) {}

  // Sets and adds are answered immediately.
  RequestId ask(StoreRequest request, Answer answer) override;
  void forget(RequestId request_id) override { parked_.forget(request_id); }

  std::size_t parked() const { return parked_.size(); }

 private:
  void set(StoreRequest request, const Answer& answer);
  RequestId get(const std::string& key, Answer& answer);  // moves from it only to park it

  StoreTable table_;
  ParkedGets parked_;
  RequestId last_request_id_ = 0;
};

}  // namespace hvd
