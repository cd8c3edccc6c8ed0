// Python's tracebacks in what the ranks of a job write: one that several ranks write alike is shown once, with their
// numbers. A traceback is held back until it is complete, and then for a moment longer; everything else passes. Pure.
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
  static constexpr std::size_t kLongest = std::size_t{256} << 10;  // bytes; a longer one passes in pieces

  // Whole lines that a rank has written, or the beginning of one. Returns what is to be shown now.
  std::string feed(int rank, std::string_view lines, TimePoint now);

  // When due() has something to say.
  std::optional<Deadline> next_deadline() const;
  std::string due(TimePoint now);
  // Nothing more comes of anybody.
  std::string rest();

 private:
  struct Open {
    std::string text;
    bool is_complete = false;  // but for exceptions that follow from it
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
  std::vector<Told> told_;    // in the order in which they came
};

}  // namespace hvd::launcher
