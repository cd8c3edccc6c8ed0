#include "tests/bench/calls.h"

#include <hvd.hpp>

namespace hvd::bench {

struct Calls::Parts {
  explicit Parts(std::size_t bytes) : values(bytes / sizeof(float), 1.0F) {}

  Session session;
  std::vector<float> values;
  const hvd::Options named{.name = "named"};
  Prepared prepared = prepare_allreduce(values, max, {.name = "prepared"});
};

Calls::Calls(std::size_t bytes) : parts_(std::make_unique<Parts>(bytes)) {}
Calls::~Calls() = default;

std::vector<Way> Calls::ways() {
  Parts& parts = *parts_;
  return {{"hvd::allreduce", [&parts] { allreduce(parts.values, max, parts.named); }},
          {"start and wait",
           [&parts] {
             parts.prepared.start();
             parts.prepared.wait();
           }},
          {"prepared()", [&parts] { parts.prepared(); }}};
}

}  // namespace hvd::bench
