// Distributes one stream of one rank (standard output or standard error): whole lines, tagged on request, to hvdrun's
// own stream, and all bytes to a file, if there is one, and to the tail that failure reports quote. Main thread only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/net/socket.h"
#include "launcher/output/output_sink.h"

namespace hvd::launcher {

enum class Stream { output, errors };

// Splits a stream into lines, so that lines of different ranks never mix. Pure.
// A line ends at \n. The output is the input, byte for byte, only later, with a tag at the beginning of every line; the
// tag may differ each time (a time stamp). A line longer than kMaxPartial is passed on in pieces. Only for a line that
// is overwritten with \r (a progress bar), earlier states are left out.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxPartial = std::size_t{1} << 20;

  using Tag = std::function<std::string()>;  // empty: none
  explicit LineSplitter(Tag tag);

  // Appends the complete lines to `out` and keeps the rest.
  void feed(std::string_view bytes, std::string& out);
  // Appends the rest, although its line is incomplete; an overwritten line is completed with \n.
  void flush(std::string& out);
  // The same at the end of the stream: a line with a tag is completed with \n, as another rank's tag may follow.
  void end(std::string& out);

  // The rest is the beginning of a line: perhaps a prompt.
  bool has_partial() const;
  // The rest is a line that was overwritten, and may be again.
  bool is_overwritten() const;
  // The last state of the rest, with a tag and without \n; empty if it has no visible character.
  std::string last_state() const;

 private:
  void emit(std::string_view bytes, std::string& out);

  Tag tag_;
  std::string partial_;
  bool line_is_open_ = false;  // the beginning of the current line, with its tag, was passed on already
};

// Keeps the last lines of a rank's standard error for the report of its failure, in bounded memory. Pure.
class OutputTail {
 public:
  static constexpr std::size_t kBytes = 16 * 1024;
  static constexpr std::size_t kMaxLineBytes = 500;

  void feed(std::string_view bytes);

  // At most `count` lines, without line ends: the last state of an overwritten line (\r), the beginning of a long one.
  std::vector<std::string> last_lines(std::size_t count) const;

 private:
  std::string bytes_;
  bool begins_inside_line_ = false;
};

// Whether colours are allowed, from the variables TERM and NO_COLOR (https://no-color.org); empty: not set.
bool allows_colours(std::string_view terminal, std::string_view no_color);

// One of a terminal's 256 colours, with contrast on black and on white; every eighth rank has the same.
int colour_of_rank(int rank);

// The name in files and tags: "stdout" or "stderr".
const char* stream_name(Stream stream);

// "[3]<stdout>:", "[server 1]<stdout>:". Colours only the foreground, and only up to the colon: other attributes set
// by a rank stay set.
std::string output_tag(int rank, Stream stream, bool coloured, const std::string& kind = "");

struct OutputFile {
  FileDescriptor fd;
  std::string path;
};

// A file of --output-filename: DIR/rank.<N>/stdout or stderr, N padded with zeros as by horovodrun. Pure.
std::filesystem::path output_path(const std::filesystem::path& directory, int rank, int size, const std::string& stream,
                                  const std::string& kind = "rank");

// Creates the folders and the file; `more`: appends to it, else empties it. Throws Error that names the path.
OutputFile open_output_file(const std::filesystem::path& path, bool more = false);

class OutputStream {
 public:
  struct Options {
    LineSplitter::Tag tag;                                   // empty: lines are not tagged
    bool whole_lines = true;                                 // false: all output is shown at once (a job of one rank)
    bool shown = true;                                       // false: nothing is written to the sink
    int place = 0;                                           // of its progress bar among the others
    std::function<std::string(std::string_view)> hold_back;  // filters the text to be shown; may be empty
    std::optional<OutputFile> file;
    std::function<void(const std::string&)> warn;  // called with a line for the user
  };

  OutputStream(OutputSink& sink, Options options);

  void feed(std::string_view bytes);

  // The end of the stream. Further calls do nothing.
  void close();
  bool closed() const;
  const OutputTail& tail() const;

  // A line that stays incomplete for a moment is shown nevertheless: on a terminal as it is, since it may be a prompt.
  // A line that is being overwritten is shown as a bar on a terminal, elsewhere as a line from time to time.
  std::optional<Deadline> next_deadline() const;
  void show_partial(TimePoint now);

 private:
  void write_file(std::string_view bytes);
  void flush();
  void show(const std::string& lines);
  void show_bar();
  void hide_bar();

  OutputSink& sink_;
  Options options_;
  LineSplitter splitter_;
  OutputTail tail_;
  bool closed_ = false;
  std::optional<Deadline> show_partial_at_, show_bar_at_;
  Deadline no_bar_before_{};
  bool bar_is_shown_ = false;
};

}  // namespace hvd::launcher
