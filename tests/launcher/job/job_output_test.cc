#include "launcher/job/job_output.h"

#include "tests/launcher/start_time.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

const std::string kTraceback =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 3, in <module>\n"
    "    step()\n"
    "ValueError: bad\n";
const std::string kChain =
    kTraceback + "\nDuring handling of the above exception, another exception occurred:\n\n" + kTraceback;

TEST_CASE("what is no traceback passes at once") {
  SameTracebacks tracebacks;
  for (const std::string text : {"a line\n", "two\nlines\n", "> ", "\n", "  indented\n", "50%\r"}) {
    CHECK(tracebacks.feed(0, text, kStart) == text);
  }
  CHECK_FALSE(tracebacks.next_deadline().has_value());
}

TEST_CASE("the same traceback of several ranks is shown once, a moment later") {
  for (const std::string& text : {kTraceback, kChain}) {
    SameTracebacks tracebacks;
    for (const int rank : {2, 0, 1}) {
      // In two pieces, the end of a line between them.
      const std::size_t half = text.find("    step()");
      CHECK(tracebacks.feed(rank, text.substr(0, half), kStart).empty());
      CHECK(tracebacks.feed(rank, text.substr(half), kStart).empty());
    }
    CHECK(tracebacks.next_deadline() == kStart + SameTracebacks::kHoldTime);
    CHECK(tracebacks.due(kStart + 1ms).empty());
    CHECK(tracebacks.due(kStart + SameTracebacks::kHoldTime) == "hvdrun: identical traceback from ranks 0-2:\n" + text);
    CHECK_FALSE(tracebacks.next_deadline().has_value());
    CHECK(tracebacks.rest().empty());
  }
}

TEST_CASE("different ones are shown as they came") {
  SameTracebacks tracebacks;
  const std::string other = kTraceback.substr(0, kTraceback.rfind("bad")) + "worse\n";
  tracebacks.feed(1, kTraceback, kStart);
  tracebacks.feed(0, other, kStart);
  tracebacks.feed(3, kTraceback, kStart);
  CHECK(tracebacks.rest() == other + "hvdrun: identical traceback from ranks 1, 3:\n" + kTraceback);
}

TEST_CASE("what a rank writes stays in its order") {
  SameTracebacks tracebacks;
  tracebacks.feed(0, kTraceback, kStart);
  CHECK(tracebacks.feed(1, "something else\n", kStart) == "something else\n");
  CHECK(tracebacks.feed(0, "after it\n", kStart) == kTraceback + "after it\n");
  CHECK(tracebacks.rest().empty());
}

TEST_CASE("a traceback that does not go on is shown as far as it has come, and a long one before its end") {
  SameTracebacks tracebacks;
  const std::string torn = kTraceback.substr(0, kTraceback.find("ValueError"));
  CHECK(tracebacks.feed(0, torn, kStart).empty());
  CHECK(tracebacks.due(*tracebacks.next_deadline()) == torn);
  CHECK(tracebacks.feed(0, "    step()\n", kStart) == "    step()\n");
  std::string shown = tracebacks.feed(0, torn, kStart);
  std::size_t fed = torn.size();
  while (shown.empty() && fed <= 2 * SameTracebacks::kMaxBytes) {
    shown = tracebacks.feed(0, "    again()\n", kStart);
    fed += 12;
  }
  CHECK(shown.size() == fed);
}

}  // namespace
}  // namespace hvd::launcher
