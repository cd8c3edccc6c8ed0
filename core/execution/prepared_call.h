// A call that a locked schedule has prepared for an operation on one tensor whose caller waits for it: only the
// addresses are to be filled in.
#pragma once

#include <cstdint>

#include "core/execution/backend.h"
#include "core/flight/flight_layout.h"
#include "core/operation/collective_call.h"
#include "core/operation/direct_call.h"

namespace hvd {

struct PreparedCall {
  const Request* request = nullptr;  // null: this stage cannot be performed directly
  Backend* backend = nullptr;
  CollectiveCall call;
  std::int64_t bytes = 0;
  FlightWords described{};

  // Compares everything except the name.
  bool fits(const DirectCall& direct) const { return request != nullptr && direct.asks_for(*request); }
};

}  // namespace hvd
