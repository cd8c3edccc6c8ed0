// Which names are in flight, so that "duplicate name" does not depend on how fast the job is.
//
// A name is taken from submit until both have let go of its token: the engine, when the operation has ended, and the
// caller, when it has seen that (waited, polled as done, or dropped the handle). Any thread.
//
// Also gives names to operations without one: a counter per process set, the same on every rank if all ranks submit
// the same operations; if they do not, two different operations meet under one number and are told apart by the
// coordinator's check. Ranks that join early have counted less far, so numbers start anew when all have joined.
// Synchronous operations are not counted, so that a loop of them has one name, which the ranks know after the first.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/base/error.h"

namespace hvd {

// A set has one join at a time, and ranks that join early have counted fewer operations: it has a name of its own.
// Nothing else is taken while it is in flight.
inline constexpr const char* kJoinName = "<join>";

// Holds the name; the last one to let go makes it free.
using NameToken = std::shared_ptr<const std::string>;

class FlightNames {
 public:
  // Makes a name up if it is empty. Throws InvalidArgument if it is taken, or while the set's join is in flight.
  NameToken take(std::int32_t process_set, std::string name) {
    std::lock_guard lock(state_->mutex);
    if (state_->names.contains({process_set, kJoinName})) {
      throw InvalidArgument("this rank has joined: wait for the join to end before anything else is submitted");
    }
    if (name.empty()) {
      name = "unnamed." + std::to_string(++state_->unnamed[process_set]);
      ++state_->changes;
    }
    if (!state_->names.emplace(process_set, name).second) {
      throw InvalidArgument(
          "'" + name + "' is already in flight: wait for it, or poll it as done, before the name is " + "used again");
    }
    // The state lives as long as any token: a handle may outlast the runtime.
    return NameToken(new std::string(std::move(name)), [state = state_, process_set](const std::string* held) {
      const std::unique_ptr<const std::string> owned(held);
      std::lock_guard release_lock(state->mutex);
      state->names.erase({process_set, *owned});
    });
  }

  // Is any name of the set taken?
  bool any(std::int32_t process_set) const {
    std::lock_guard lock(state_->mutex);
    const auto first = state_->names.lower_bound({process_set, std::string()});
    return first != state_->names.end() && first->first == process_set;
  }

  bool is_taken(std::int32_t process_set, const std::string& name) const {
    std::lock_guard lock(state_->mutex);
    return state_->names.contains({process_set, name});
  }

  // The name of an operation without one that its caller waits for. If it is taken, that of another thread or of one
  // that nobody waits for any more, the operation is to be counted like the rest.
  std::string name_of_synchronous(std::int32_t process_set) const {
    std::lock_guard lock(state_->mutex);
    const auto counted = state_->unnamed.find(process_set);
    return "unnamed.after." + std::to_string(counted == state_->unnamed.end() ? 0 : counted->second);
  }

  // As long as this is the same, name_of_synchronous() is.
  std::uint64_t changes_of_numbers() const { return state_->changes.load(std::memory_order_relaxed); }

  // Ranks call it at the same point of the common order of operations.
  void restart_numbers(std::int32_t process_set) {
    std::lock_guard lock(state_->mutex);
    state_->unnamed.erase(process_set);
    ++state_->changes;
  }

 private:
  struct State {
    std::mutex mutex;
    std::set<std::pair<std::int32_t, std::string>> names;  // guarded by mutex
    std::map<std::int32_t, std::uint64_t> unnamed;         // guarded by mutex
    std::atomic<std::uint64_t> changes{0};                 // of them
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace hvd
