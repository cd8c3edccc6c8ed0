// Distributes one stream of one rank (standard output or standard error): whole lines to hvdrun's own stream, and all
// bytes to a file, if there is one, and to the tail that failure reports quote. Main thread only.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/net/socket.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/output_sink.h"

namespace hvd::launcher {

enum class Stream { output, errors };

// The files that --output-filename writes: DIR/rank.<N>/stdout and stderr, with N padded with zeros to the width of the
// largest, like horovodrun.
struct OutputFile {
  FileDescriptor fd;
  std::string path;
};

// Pure.
std::filesystem::path output_path(const std::filesystem::path& directory, int rank, int size,
                                  const std::string& stream);

// Creates the folders, and creates or truncates the file. Throws Error that names the path.
OutputFile open_output_file(const std::filesystem::path& path);

class OutputStream {
 public:
  struct Options {
    LineSplitter::Tag tag;                                   // empty: lines are not tagged
    bool whole_lines = true;                                 // false: all output is shown at once (a job of one rank)
    bool shown = true;                                       // false: nothing is written to the sink
    int place = 0;                                           // of its progress bar among the others
    std::function<std::string(std::string_view)> hold_back;  // filters the text to be shown; may be empty
    std::optional<OutputFile> file;
    std::function<void(const std::string&)> complain;  // called with a line for the user
  };

  OutputStream(OutputSink& sink, Options options);

  void feed(std::string_view bytes);
  // The end of the stream. Further calls do nothing.
  void close();
  bool closed() const { return closed_; }
  const OutputTail& tail() const { return tail_; }

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
