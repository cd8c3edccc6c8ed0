#include "launcher/job/job_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "core/base/error.h"
#include "launcher/watch/job_end.h"

namespace hvd::launcher {
namespace {

bool begins(std::string_view line) { return line == "Traceback (most recent call last):\n"; }

// Whether a line may be part of a traceback, or between the tracebacks of chained exceptions.
bool continues(std::string_view line) {
  return line == "\n" || line.starts_with(' ') || begins(line) ||
         line.starts_with("During handling of the above exc") ||
         line.starts_with("The above exception was the direct cause");
}

// "2026-11-22 10:41:12.345"
std::string local_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03ld", now.tv_nsec / 1'000'000);
  return text;
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string SameTracebacks::feed(int rank, std::string_view lines, TimePoint now) {
  std::string shown;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    feed_line(rank, lines.substr(0, end), now, shown);
    lines.remove_prefix(end);
  }
  return shown;
}

std::optional<Deadline> SameTracebacks::next_deadline() const {
  std::optional<Deadline> next;
  for (const auto& [rank, open] : open_) next = earlier(next, open.deadline);
  for (const Told& told : told_) next = earlier(next, told.deadline);
  return next;
}

void SameTracebacks::feed_line(int rank, std::string_view line, TimePoint now, std::string& shown) {
  const auto found = open_.find(rank);
  const bool is_open = found != open_.end();
  const bool is_more = is_open && (!found->second.is_complete || continues(line));
  if (!is_more && !begins(line)) {
    if (is_open) close(rank, now);
    show_of(rank, shown);
    shown += line;
    return;
  }
  Open& open = open_[rank];
  open.text += line;
  open.is_complete = !continues(line);  // the line of the exception itself is not indented
  open.deadline = now + kHoldTime;
  if (open.text.size() <= kMaxBytes) return;
  show_of(rank, shown);
  shown += open.text;
  open_.erase(rank);
}

// The rank's traceback is complete: merges it with an identical one.
void SameTracebacks::close(int rank, TimePoint now) {
  std::string text = std::move(open_.at(rank).text);
  open_.erase(rank);
  const auto same = std::find_if(told_.begin(), told_.end(), [&](const Told& told) { return told.text == text; });
  if (same == told_.end()) {
    told_.push_back({.text = std::move(text), .ranks = {rank}, .deadline = now + kHoldTime});
  } else {
    same->ranks.push_back(rank);
  }
}

void SameTracebacks::show_of(int rank, std::string& shown) {
  std::erase_if(told_, [&](const Told& told) {
    const bool is_its_own = std::find(told.ranks.begin(), told.ranks.end(), rank) != told.ranks.end();
    if (is_its_own) show(told, shown);
    return is_its_own;
  });
}

void SameTracebacks::show(const Told& told, std::string& shown) {
  std::vector<int> ranks = told.ranks;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  if (ranks.size() > 1) shown += "hvdrun: identical traceback from " + list_ranks(ranks) + ":\n";
  shown += told.text;
}

std::string SameTracebacks::due(TimePoint now) {
  std::vector<int> ended;
  for (const auto& [rank, open] : open_) {
    if (now >= open.deadline) ended.push_back(rank);
  }
  for (const int rank : ended) close(rank, now - kHoldTime);  // the hold time has passed already
  std::string shown;
  std::erase_if(told_, [&](const Told& told) {
    if (now >= told.deadline) show(told, shown);
    return now >= told.deadline;
  });
  return shown;
}

std::string SameTracebacks::rest() {
  std::vector<int> ranks;
  for (const auto& [rank, open] : open_) ranks.push_back(rank);
  for (const int rank : ranks) close(rank, TimePoint());
  return due(TimePoint::max());
}

JobOutput::JobOutput(EventLoop& loop, int size, int servers, OutputOptions options, Callbacks callbacks)
    : loop_(loop),
      size_(size),
      servers_(servers),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      standard_output_(open_sink(STDOUT_FILENO, Stream::output)) {
  if (!is_same_file(STDOUT_FILENO, STDERR_FILENO)) standard_error_ = open_sink(STDERR_FILENO, Stream::errors);
}

std::unique_ptr<OutputSink> JobOutput::open_sink(int fd, Stream stream) {
  const std::string name = stream == Stream::output ? "standard output" : "standard error";
  return std::make_unique<OutputSink>(
      loop_, fd,
      OutputSink::Callbacks{
          .relieved = [this, stream] { hold(stream, false); },
          .reader_left = callbacks_.reader_left,
          .failure =
              [this, name](const std::string& cause) { say("writing " + name + ": " + cause + "; the job goes on"); }});
}

void JobOutput::open(const RankPlan& process, bool job_runs) {
  OutputFiles files;
  try {
    if (!options_.directory.empty()) files = open_files(process);
  } catch (const Error& error) {
    if (!job_runs) throw;
    const bool is_server = process.server >= 0;
    say(std::string(error.what()) + "; the output of " +
        (is_server ? process_name(process) : "process " + std::to_string(process.numbers.rank)) + " is not saved");
  }
  Streams& streams = streams_[process.numbers.rank];
  streams.output = open_stream(process, Stream::output, std::move(files.output));
  if (!options_.merge_errors) streams.errors = open_stream(process, Stream::errors, std::move(files.errors));
}

void JobOutput::wrote(int rank, Stream stream, std::string_view bytes) {
  const Streams& streams = streams_.at(rank);
  OutputStream& target = *(stream == Stream::output || !streams.errors ? streams.output : streams.errors);
  if (bytes.empty()) return target.close();
  target.feed(bytes);
  if (sink_of(stream).congested()) hold(stream, true);
}

void JobOutput::close(int rank) {
  const auto found = streams_.find(rank);
  if (found == streams_.end()) return;
  const Streams& streams = found->second;
  if (streams.output) streams.output->close();
  if (streams.errors) streams.errors->close();
}

void JobOutput::close_all() {
  for (OutputStream* stream : streams()) stream->close();
  errors().append(tracebacks_.rest());
}

bool JobOutput::all_closed() const {
  return std::ranges::all_of(streams(), [](const OutputStream* stream) { return stream->closed(); });
}

void JobOutput::append(std::string_view text) { errors().append_lines(text); }

void JobOutput::say(const std::string& line) { append("hvdrun: " + line + "\n"); }

bool JobOutput::all_written() const {
  return standard_output_->empty() && (!standard_error_ || standard_error_->empty());
}

std::optional<Deadline> JobOutput::next_deadline() const {
  std::optional<Deadline> next = tracebacks_.next_deadline();
  for (const OutputStream* stream : streams()) next = earlier(next, stream->next_deadline());
  return next;
}

void JobOutput::show_due(TimePoint now) {
  for (OutputStream* stream : streams()) stream->show_partial(now);
  if (const std::string held_back = tracebacks_.due(now); !held_back.empty()) errors().append(held_back);
}

std::vector<std::string> JobOutput::last_lines(int rank, std::size_t count) const {
  const Streams& streams = streams_.at(rank);
  return (streams.errors ? streams.errors : streams.output)->tail().last_lines(count);
}

JobOutput::OutputFiles JobOutput::open_files(const RankPlan& process) const {
  const auto open_one = [&](Stream stream) {
    return open_output_file(path_of(process, stream_name(stream)), process.server_start > 0);
  };
  OutputFiles files{.output = open_one(Stream::output), .errors = {}};
  if (!options_.merge_errors) {
    files.errors = open_one(Stream::errors);
  } else {
    std::error_code none;  // a file of an earlier job would be taken for this one's
    std::filesystem::remove(path_of(process, stream_name(Stream::errors)), none);
  }
  return files;
}

std::unique_ptr<OutputStream> JobOutput::open_stream(const RankPlan& process, Stream stream,
                                                     std::optional<OutputFile> file) {
  const int rank = process.numbers.rank;
  OutputStream::Options options;
  options.tag = tag(process, stream);
  options.whole_lines = size_ + servers_ > 1;
  options.shown = !options_.files_only;
  options.place = 2 * rank + (stream == Stream::errors ? 1 : 0);
  options.file = std::move(file);
  options.warn = [this](const std::string& line) { say(line); };
  if (stream == Stream::errors && options.whole_lines && !options.tag && process.server < 0) {
    options.hold_back = [this, rank](std::string_view lines) { return tracebacks_.feed(rank, lines, Clock::now()); };
  }
  return std::make_unique<OutputStream>(sink_of(stream), std::move(options));
}

LineSplitter::Tag JobOutput::tag(const RankPlan& process, Stream stream) {
  const bool coloured = sink_of(stream).is_terminal() && allows_colours(variable("TERM"), variable("NO_COLOR"));
  std::string place;
  if (options_.tag) {
    place = process.server < 0 ? output_tag(process.numbers.rank, stream, coloured)
                               : output_tag(process.server, stream, coloured, "server ");
  }
  if (options_.timestamp) return [place] { return local_time() + " " + place; };
  if (options_.tag) return [place] { return place; };
  return nullptr;
}

std::filesystem::path JobOutput::path_of(const RankPlan& process, const std::string& stream) const {
  const bool is_server = process.server >= 0;
  return is_server ? output_path(options_.directory, process.server, servers_, stream, "server")
                   : output_path(options_.directory, process.numbers.rank, size_, stream);
}

void JobOutput::hold(Stream stream, bool on) {
  for (const Stream each : {Stream::output, Stream::errors}) {
    if (&sink_of(each) == &sink_of(stream)) callbacks_.hold(each, on);
  }
}

OutputSink& JobOutput::errors() { return standard_error_ ? *standard_error_ : *standard_output_; }

OutputSink& JobOutput::sink_of(Stream stream) { return stream == Stream::output ? *standard_output_ : errors(); }

std::vector<OutputStream*> JobOutput::streams() const {
  std::vector<OutputStream*> all;
  for (const auto& [number, streams] : streams_) {
    if (streams.output) all.push_back(streams.output.get());
    if (streams.errors) all.push_back(streams.errors.get());
  }
  return all;
}

}  // namespace hvd::launcher
