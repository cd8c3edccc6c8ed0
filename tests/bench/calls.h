// The ways in which a program can have a small allreduce, in place, over hvd.hpp: what users' calls cost above the data
// plane. A source of its own, since hvd.hpp and the core's headers have the same names.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hvd::bench {

struct Way {
  std::string name;
  std::function<void()> call;
};

// All ranks construct together: joins the job that the environment describes, and leaves it at the end.
class Calls {
 public:
  explicit Calls(std::size_t bytes);
  ~Calls();
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // Of the maximum, which leaves the values as they are. Throws if they are not, hvd::Error.
  std::vector<Way> ways();

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace hvd::bench
