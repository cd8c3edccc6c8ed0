// Tensors that are performed as one collective. Points into the responses it was planned from.
#pragma once

#include <cstddef>
#include <vector>

#include "core/negotiation/response.h"

namespace hvd {

struct Bucket {
  struct Item {
    const Response* response = nullptr;
    std::size_t tensor = 0;  // index into response->request.tensors
  };
  std::vector<Item> items;  // same process set, collective, dtype, op, scales and device; barrier: one item, no tensor

  const Request& request() const { return items.front().response->request; }
};

}  // namespace hvd
