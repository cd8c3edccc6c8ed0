// Shows the output of all ranks on hvdrun's own streams, and merges identical tracebacks. Main thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/output_stream.h"
#include "launcher/plan/host_plan.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

// Merges identical Python tracebacks in the ranks' standard error: one that several ranks write is shown once, with
// their numbers. A traceback is held back until it is complete, and then for kHoldTime; other lines pass at once. Pure.
class SameTracebacks {
 public:
  static constexpr Duration kHoldTime = 1s;
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 10;  // bytes; a longer traceback is shown in pieces

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
  // Shows the rank's held-back tracebacks before its next output, so that the output stays in order.
  void show_of(int rank, std::string& shown);
  static void show(const Told& told, std::string& shown);

  std::map<int, Open> open_;  // by rank
  std::vector<Told> told_;    // in the order of arrival
};

struct OutputOptions {
  std::string directory;    // of the files; empty: output goes only to hvdrun's own streams
  bool files_only = false;  // output goes only to the files
  bool tag = false;         // lines begin with rank and stream
  bool timestamp = false;   // lines begin with the time
  bool merge_errors = false;
  bool operator==(const OutputOptions&) const = default;
};

class JobOutput {
 public:
  struct Callbacks {
    std::function<void(Stream, bool on)> hold;  // all ranks' streams of this kind, because the reader is slow
    std::function<void()> reader_left;          // called once
  };

  // `size` ranks and `servers` beside them.
  JobOutput(EventLoop& loop, int size, int servers, OutputOptions options, Callbacks callbacks);

  // Opens the streams of a process, which may be a further one. If its files cannot be written, throws Error, or, while
  // the job runs, says so and goes on without them.
  void open(const RankPlan& process, bool job_runs);
  // Empty `bytes`: the end of the stream.
  void wrote(int rank, Stream stream, std::string_view bytes);
  // The streams have ended; of all ranks: shows what is held back, too.
  void close(int rank);
  void close_all();
  bool all_closed() const;

  // Writes lines of hvdrun's own to standard error, in order with the ranks' lines; say() one of them.
  void append(std::string_view text);
  void say(const std::string& line);
  bool all_written() const;

  // When to call show_due() next.
  std::optional<Deadline> next_deadline() const;
  void show_due(TimePoint now);

  // Of the rank's standard error.
  std::vector<std::string> last_lines(int rank, std::size_t count) const;

 private:
  struct Streams {
    std::unique_ptr<OutputStream> output, errors;  // errors: null if merged
  };

  std::unique_ptr<OutputSink> open_sink(int fd, Stream stream);
  struct OutputFiles {
    std::optional<OutputFile> output, errors;
  };
  OutputFiles open_files(const RankPlan& process) const;
  std::unique_ptr<OutputStream> open_stream(const RankPlan& process, Stream stream, std::optional<OutputFile> file);
  LineSplitter::Tag tag(const RankPlan& process, Stream stream);
  std::filesystem::path path_of(const RankPlan& process, const std::string& stream) const;
  void hold(Stream stream, bool on);
  OutputSink& errors();
  OutputSink& sink_of(Stream stream);
  // All that are open or were.
  std::vector<OutputStream*> streams() const;

  EventLoop& loop_;
  const int size_, servers_;
  const OutputOptions options_;
  const Callbacks callbacks_;
  std::unique_ptr<OutputSink> standard_output_, standard_error_;  // standard_error_: null if both are the same file
  SameTracebacks tracebacks_;                                     // in standard error
  std::map<int, Streams> streams_;                                // by rank; servers follow
};

}  // namespace hvd::launcher
