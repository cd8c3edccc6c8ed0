// Tensors that are performed as one collective. Points into the responses from which it was planned.
#pragma once

#include <cstddef>
#include <vector>

#include "core/control/protocol/response.h"

namespace hvd {

struct Bucket {
  struct Item {
    const Response* response = nullptr;
    std::size_t tensor = 0;  // index into response->request.tensors
  };
  // Same process set, collective, dtype, op, scales, device and number of contributing ranks; barrier: one item, no
  // tensor.
  std::vector<Item> items;

  const Response& response() const { return *items.front().response; }
  const Request& request() const { return response().request; }
};

}  // namespace hvd
