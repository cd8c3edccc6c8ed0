// Merges identical Python tracebacks in the ranks' standard error: one that several ranks write is shown once, with
// their numbers. A traceback is held back until it is complete, and then for kHoldTime; other lines pass at once. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"

namespace hvd::launcher {

class SameTracebacks {
 public:
  static constexpr Duration kHoldTime = 1s;
  static constexpr std::size_t kLongest = std::size_t{256} << 10;  // bytes; a longer traceback is shown in pieces

  // Takes whole lines of a rank, or the beginning of one. Returns the text to be shown now.
  std::string feed(int rank, std::string_view lines, TimePoint now);

  // When to call due() next.
  std::optional<Deadline> next_deadline() const;
  // Returns the text whose hold time is over.
  std::string due(TimePoint now);
  // Returns all text that is held back, at the end of the output of all ranks.
  std::string rest();

 private:
  struct Open {
    std::string text;
    bool is_complete = false;  // except for chained exceptions that may follow
    Deadline deadline{};       // for its next line
  };
  struct Told {
    std::string text;
    std::vector<int> ranks;
    Deadline deadline{};
  };

  void feed_line(int rank, std::string_view line, TimePoint now, std::string& shown);
  void close(int rank, TimePoint now);
  void show_of(int rank, std::string& shown);
  static void show(const Told& told, std::string& shown);

  std::map<int, Open> open_;  // by rank
  std::vector<Told> told_;    // in the order of arrival
};

}  // namespace hvd::launcher
