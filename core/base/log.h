// Log lines with rank and time, on standard error. Implemented with spdlog, in log.cc only.
//
// One Log per Runtime (no global logger): every object that logs gets a `const Log&`. Callers format their messages, so
// that no header includes the formatting library: log.warning("rank " + std::to_string(r) + " ...").
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace hvd {

enum class LogLevel { trace = 0, debug = 1, info = 2, warning = 3, error = 4, off = 6 };  // numbered as spdlog's

// Accepts Horovod's names too (TRACE .. FATAL, any case); throws InvalidArgument on anything else.
LogLevel parse_log_level(std::string_view text);

class Log {
 public:
  // `who` is part of every line, for instance "rank 3" or "hvdrun".
  Log(const std::string& who, LogLevel level);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  bool enabled(LogLevel level) const;
  void write(LogLevel level, std::string_view message) const;  // any thread

  void debug(std::string_view message) const;
  void info(std::string_view message) const;
  void warning(std::string_view message) const;
  void error(std::string_view message) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace hvd
