#include "launcher/output/output_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    reader.reset(ends[0]);
    writer.reset(ends[1]);
    fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  }
  std::string read_available() {
    std::string result;
    char bytes[65536];
    for (ssize_t n = read(reader.get(), bytes, sizeof bytes); n > 0; n = read(reader.get(), bytes, sizeof bytes)) {
      result.append(bytes, static_cast<std::size_t>(n));
    }
    return result;
  }
  FileDescriptor reader, writer;
};

struct Observed {
  int relieved = 0, reader_left = 0;
  std::string failure;
  OutputSink::Callbacks callbacks() {
    return {.relieved = [this] { ++relieved; },
            .reader_left = [this] { ++reader_left; },
            .failure = [this](const std::string& cause) { failure = cause; }};
  }
};

TEST_CASE("hvdrun's own lines begin a line, whatever a rank has written before") {
  EventLoop loop;
  Pipe pipe;
  Observed observed;
  OutputSink sink(loop, pipe.writer.get(), observed.callbacks());
  sink.append_lines("hvdrun: one\n");
  sink.append("...");
  sink.append_lines("hvdrun: two\n");
  sink.append_lines("");
  sink.append("a\n");
  sink.append_lines("hvdrun: three\n");
  CHECK(pipe.read_available() == "hvdrun: one\n...\nhvdrun: two\na\nhvdrun: three\n");
}

TEST_CASE("a slow reader delays nobody and loses nothing") {
  EventLoop loop;
  Pipe pipe;
  Observed observed;
  OutputSink sink(loop, pipe.writer.get(), observed.callbacks());

  std::string written, read;
  while (!sink.congested()) {
    const std::string line = std::to_string(written.size()) + std::string(10'000, 'x') + "\n";
    sink.append(line);  // would hang here were the pipe blocking
    written += line;
  }
  CHECK_FALSE(sink.empty());
  CHECK((fcntl(pipe.writer.get(), F_GETFL) & O_NONBLOCK) == 0);  // others share this description

  const Deadline deadline = deadline_after(60s);
  while (read.size() < written.size() && Clock::now() < deadline) {
    loop.run_once(deadline_after(10ms));
    read += pipe.read_available();
  }
  CHECK(read == written);
  CHECK(sink.empty());
  CHECK(observed.relieved == 1);
}

TEST_CASE("a reader that leaves is noticed once, and output goes nowhere after that") {
  signal(SIGPIPE, SIG_IGN);
  EventLoop loop;
  Pipe pipe;
  Observed observed;
  OutputSink sink(loop, pipe.writer.get(), observed.callbacks());
  pipe.reader.reset();
  sink.append("a\n");
  sink.append("b\n");
  CHECK(observed.reader_left == 1);
  CHECK(sink.empty());
}

TEST_CASE("a reader that leaves is noticed while nothing is written") {
  EventLoop loop;
  Pipe pipe;
  Observed observed;
  OutputSink sink(loop, pipe.writer.get(), observed.callbacks());
  std::string read;
  while (sink.empty()) sink.append(std::string(10'000, 'x'));
  const Deadline deadline = deadline_after(60s);
  while (!sink.empty() && Clock::now() < deadline) {
    read += pipe.read_available();
    loop.run_once(deadline_after(10ms));
  }
  CHECK(observed.reader_left == 0);
  pipe.reader.reset();
  while (observed.reader_left == 0 && Clock::now() < deadline) loop.run_once(deadline_after(10ms));
  loop.run_once(Clock::now());
  CHECK(observed.reader_left == 1);
}

TEST_CASE("a full disk is reported once with its cause") {
  EventLoop loop;
  Observed observed;
  const FileDescriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  OutputSink sink(loop, full.get(), observed.callbacks());
  sink.append("a\n");
  CHECK(observed.failure == "No space left on device");
  CHECK(observed.reader_left == 0);
  observed.failure.clear();
  sink.append("b\n");
  CHECK(observed.failure.empty());
}

TEST_CASE("a file that fails is no terminal that is gone") {
  EventLoop loop;
  Observed observed;
  const FileDescriptor unwritable(open("/proc/self/mem", O_WRONLY | O_CLOEXEC));  // nothing lies at its beginning
  OutputSink sink(loop, unwritable.get(), observed.callbacks());
  sink.append("a\n");
  CHECK(observed.failure == "Input/output error");
  CHECK(observed.reader_left == 0);
}

TEST_CASE("one file under two numbers is recognised") {
  Pipe pipe, other;
  const FileDescriptor copy(dup(pipe.writer.get()));
  CHECK(is_same_file(pipe.writer.get(), copy.get()));
  CHECK_FALSE(is_same_file(pipe.writer.get(), other.writer.get()));
}

constexpr Bars::Terminal kWide{.columns = 80, .rows = 24};

Bars bars_of(const std::vector<std::pair<int, std::string>>& given) {
  Bars bars;
  for (const auto& [place, text] : given) bars.set(place, text);
  return bars;
}

TEST_CASE("bars stand below each other in the order of their places") {
  Bars bars = bars_of({{2, "b"}, {0, "a"}});
  CHECK(bars.erase().empty());
  CHECK(bars.draw(kWide) == "a\nb");
  CHECK(bars.erase() == "\r\x1b[1A\x1b[J");
  CHECK(bars.erase().empty());
  bars.set(2, "");
  CHECK(bars.draw(kWide) == "a");
  CHECK(bars.erase() == "\r\x1b[J");
  bars.set(0, "");
  CHECK(bars.empty());
  CHECK(bars.draw(kWide).empty());
  CHECK(bars.erase().empty());
}

TEST_CASE("a bar takes one line of the terminal") {
  struct Row {
    std::string text, drawn;
  };
  const Row rows[] = {
      {"123456789", "123456789"},
      {"1234567890", "123456789"},
      {"\xe2\x96\x88\xe2\x96\x88"
       "34567890",
       "\xe2\x96\x88\xe2\x96\x88"
       "3456789"},
      {"\x1b[31m12345\x1b[0m6789", "\x1b[31m12345\x1b[0m6789"},
      {"\x1b[31m1234567890\x1b[0m", "\x1b[31m123456789\x1b[0m"},
      {"\x1b[A12\x1b[K3\t4", "1234"},
      {"12\x1b[3", "12[3"},
  };
  for (const Row& row : rows) CHECK(bars_of({{0, row.text}}).draw({.columns = 10, .rows = 24}) == row.drawn);
}

TEST_CASE("bars that do not fit are counted") {
  const Bars three = bars_of({{0, "a"}, {1, "b"}, {2, "c"}});
  CHECK(Bars(three).draw({.columns = 80, .rows = 4}) == "a\nb\nc");
  CHECK(Bars(three).draw({.columns = 80, .rows = 3}) == "a\nand 2 more");
  CHECK(Bars(three).draw({.columns = 80, .rows = 1}) == "and 3 more");
  Bars bars(three);
  bars.draw({.columns = 80, .rows = 3});
  CHECK(bars.erase() == "\r\x1b[1A\x1b[J");
}

}  // namespace
}  // namespace hvd::launcher
