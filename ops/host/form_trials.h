// Which of two ways to do an allreduce is faster for messages of a size, found by using both: through shared memory in
// chunks, or by reading the other ranks' memory directly. On machines where memory is the bottleneck the second moves
// fewer bytes; where caches carry the chunks the first one wins.
//
// For each power of two the first calls take the two ways by turns, then the ranks add up what they cost everyone and
// keep to the cheaper one. Both give the same bits. All ranks ask in the same order and agree on the costs, so all of
// them choose alike.
//
// Pure; the clock is the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace hvd {

class FormTrials {
 public:
  enum class Form { chunks, reading };
  using Costs = std::array<double, 2>;  // seconds, by form

  struct Choice {
    Form form;
    bool is_trial;         // to be timed
    bool is_last = false;  // and afterwards costs() to be agreed on
  };

  // The form of the next call of so many bytes.
  Choice choose(std::int64_t bytes);
  // The call that choose() was asked for does not take place.
  void take_back(std::int64_t bytes);
  void took(std::int64_t bytes, Form form, double seconds);
  // This rank's.
  Costs costs(std::int64_t bytes) const;
  void agree(std::int64_t bytes, const Costs& of_all_ranks);

 private:
  static constexpr int kTrials = 4;  // of each form, of which the first, into cold memory, does not count

  struct Size {
    int calls = 0;
    Costs best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    Form chosen = Form::chunks;
  };

  static std::size_t index_of(std::int64_t bytes);

  std::array<Size, 64> sizes_{};
};

}  // namespace hvd
