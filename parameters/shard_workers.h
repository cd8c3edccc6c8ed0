// The workers of a shard: which process each is, how far it has come, and what was refused to it. Pure; one thread.
//
// A worker's number is kept for its job; another process may take the place of the one that had it, and has a higher
// incarnation then. Where workers come and go (elastic jobs), nobody waits for those that have not come.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/net/byte_codec.h"
#include "parameters/message.h"

namespace hvd {

class ShardWorkers {
 public:
  // `shard`: named in errors.
  explicit ShardWorkers(std::uint32_t shard) : shard_(shard) {}

  struct Refusal {
    std::uint64_t sequence = 0;
    std::string why;
    static void fields(auto& self, const auto& each) { each(self.sequence, self.why); }
  };
  struct Worker {
    std::uint64_t incarnation = 0;
    std::uint64_t applied = 0;  // sequence: what is numbered up to here was applied, or refused
    std::deque<Refusal> refusals{};
    std::uint32_t clock = 0;
    bool left = false;
    bool forgotten = false;
    bool is_elastic = false;  // others may come and go

    // Throws InvalidArgument, with the reason of then, if this request was refused before.
    void throw_if_refused(const PsRequest& request) const;
    static void fields(auto& self, const auto& each) {
      each(self.incarnation, self.applied, self.clock, Flags(self.left, self.forgotten, self.is_elastic),
           self.refusals);
    }
  };

  std::size_t size() const { return all_.size(); }
  bool empty() const { return all_.empty(); }

  // The worker of a request. Throws InvalidArgument if it has not come, Aborted if another process has taken its place.
  Worker& of(const PsRequest& request);

  struct Arrival {
    Worker& worker;
    bool is_known;  // this process was here before
  };
  // One says hello. `applied_clock`: the clocks below have taken effect. Throws InvalidArgument, Aborted.
  Arrival greet(const PsRequest& request, const PsHello& greeting, std::uint32_t applied_clock);
  // Nobody waits for it any longer. False: it never came.
  bool forget(std::uint32_t worker);
  // A numbered request of this process was refused; without effect for another one.
  void refuse(const PsRequest& request, std::span<const std::byte> why);

  // The lowest clock of those that have not left; `applied_clock` if nobody's counts.
  std::uint32_t min_clock(std::uint32_t applied_clock) const;
  // Whose that is; -1: nobody's.
  int slowest() const;
  // Whether all workers of the job have come and left; never where they come and go.
  bool are_over() const;
  // Those that have come and not left.
  std::vector<std::uint32_t> present() const;
  // The divisor of an average: all workers, or, in an elastic job, those present or contributing.
  // `pushes`: a map by worker.
  std::size_t contributors(const auto& pushes) const {
    if (!come_and_go()) return all_.size();
    const std::vector<std::uint32_t> there = present();
    std::set<std::uint32_t> counted(there.begin(), there.end());
    for (const auto& [worker, push] : pushes) counted.insert(worker);
    return std::max<std::size_t>(counted.size(), 1);
  }

  void write(ByteWriter& to) const { to.put(all_); }
  // Replaces all. Throws Internal for malformed bytes.
  void read(ByteReader& from);

 private:
  bool come_and_go() const;

  std::uint32_t shard_;
  std::vector<Worker> all_;  // by number
};

}  // namespace hvd
