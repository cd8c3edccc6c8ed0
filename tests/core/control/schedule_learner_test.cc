#include "core/control/schedule/schedule_learner.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

// Executes by letters: each its own message, asked for after the message before; in brackets: one message. "|": a
// pause. Returns how many steps it took until there was a schedule; 0: there is none.
class Stream {
 public:
  void run(const std::string& text) {
    bool together = false;
    for (const char letter : text) {
      switch (letter) {
        case '[':
          together = true;
          ++number_;
          break;
        case ']': together = false; break;
        case '|': learner.paused(); break;
        case '!': learner.disturbed(); break;
        default:
          if (!together) ++number_;
          learner.executed(static_cast<std::uint32_t>(letter - 'a'), number_, number_ - 1);
      }
    }
  }

  std::string schedule() const {
    if (!learner.has_schedule()) return "none";
    std::string text;
    for (const auto& group : learner.schedule()) {
      text += text.empty() ? "" : " ";
      for (const std::uint32_t slot : group) text += static_cast<char>('a' + slot);
    }
    return text;
  }

  ScheduleLearner learner;

 private:
  std::uint64_t number_ = 0;
};

}  // namespace

TEST_CASE("schedule learner: when there is a schedule") {
  struct Row {
    const char* what;
    const char* stream;
    const char* schedule;
  };
  const auto row = GENERATE(values<Row>({
      {"nothing yet", "", "none"},
      {"one step", "abc|", "none"},
      {"two steps", "abc|abc|", "a b c"},
      {"two steps without a pause", "abcaabc", "none"},
      {"three steps without a pause", "abcabcabc", "a b c"},
      {"not in the middle", "abc|abc|ab", "none"},
      {"one operation", "aaa", "a"},
      {"one operation and pauses", "a|a|", "a"},
      {"another order", "abc|cab|", "c a b"},
      {"operations of the start do not come again", "xyzabc|abc|abc|", "a b c"},
      {"nor with a pause in between", "xyz|abc|abc|", "none"},
      {"and with the first step", "xyzabc|abc|", "none"},
      {"a step of several pauses", "ab|c|ab|c|", "a b c"},
      {"an order that varies is no other step", "b|abc|cab|bac|acb|", "a c b"},
      {"a new operation", "abc|abc|abcd|", "none"},
      {"a missing one", "abc|abc|ab|", "none"},
      {"which then is the rule", "abc|abc|ab|ab|", "a b"},
      {"alternating steps", "ab|ac|ab|ac|", "none"},
      {"a disturbance", "abc|!abc|", "none"},
      {"in the middle of a step", "abc|a!bc|abc|abc|", "a b c"},
      {"ready together", "[abc]|[abc]|", "abc"},
      {"partly", "[abc]|[ab]c|", "ab c"},
  }));
  Stream stream;
  stream.run(row.stream);
  INFO(row.what << ": " << row.stream);
  CHECK(stream.schedule() == row.schedule);
}

TEST_CASE("schedule learner: what was asked for before the group was performed is in it") {
  ScheduleLearner learner;
  for (int step = 0; step < 2; ++step) {
    const std::uint64_t first = 10 * static_cast<std::uint64_t>(step + 1);
    learner.executed(0, first, first - 1);
    learner.executed(1, first + 1, first - 1);  // asked for before slot 0 was performed
    learner.executed(2, first + 2, first);      // maybe because slot 0 was done
    learner.executed(3, first + 3, first + 1);  // but not because slot 2 was
    learner.paused();
  }
  CHECK(learner.schedule() == Schedule{{0, 1}, {2, 3}});
}

TEST_CASE("schedule learner: a schedule that did not last makes the next one take longer") {
  Stream stream;
  const auto steps_needed = [&stream] {
    for (int steps = 1; steps <= 200; ++steps) {
      stream.run("abc|");
      if (stream.learner.has_schedule()) return steps;
    }
    return 0;
  };
  CHECK(steps_needed() == 2);
  for (const int needed : {3, 5, 9, 17, 33, 65, 65}) {
    stream.learner.given_up(7);
    CHECK(steps_needed() == needed);
  }
  stream.learner.given_up(8);
  CHECK(steps_needed() == 2);
}

TEST_CASE("schedule learner: a schedule that would have lasted makes up for those that did not") {
  Stream stream;
  stream.run("ab|ab|");
  for (int i = 0; i < 6; ++i) stream.learner.given_up(0);
  const auto round = [&stream](int steps) {
    stream.run("x|");
    for (int step = 0; step < steps; ++step) {
      stream.run("ab|");
      if (stream.learner.has_schedule()) return step + 1;
    }
    return 0;
  };
  // The first belongs to the step with x, the second is the first of its kind: so many are repetitions as remain.
  CHECK(round(17) == 0);
  CHECK(round(17) == 0);
  CHECK(round(18) == 0);  // these were enough
  CHECK(round(18) == 3);
}
