#include "core/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) { return static_cast<spdlog::level::level_enum>(level); }
static_assert(static_cast<int>(LogLevel::trace) == spdlog::level::trace &&
              static_cast<int>(LogLevel::error) == spdlog::level::err &&
              static_cast<int>(LogLevel::off) == spdlog::level::off);

}  // namespace

LogLevel parse_log_level(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  static constexpr std::array<std::pair<std::string_view, LogLevel>, 8> kNames{{{"trace", LogLevel::trace},
                                                                                {"debug", LogLevel::debug},
                                                                                {"info", LogLevel::info},
                                                                                {"warning", LogLevel::warning},
                                                                                {"warn", LogLevel::warning},
                                                                                {"error", LogLevel::error},
                                                                                {"fatal", LogLevel::error},
                                                                                {"off", LogLevel::off}}};
  for (const auto& [name, level] : kNames) {
    if (lower == name) return level;
  }
  throw InvalidArgument("one of trace, debug, info, warning, error, fatal, off");
}

// The logger is made directly, not through spdlog's registry: the registry is a process-wide object.
struct Log::Implementation {
  Implementation(const std::string& who, LogLevel level)
      : logger(who, std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_level(to_spdlog(level));
    logger.set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%n] %l: %v");
    logger.flush_on(spdlog::level::trace);
  }
  spdlog::logger logger;
};

Log::Log(const std::string& who, LogLevel level)
    : implementation_(std::make_unique<Implementation>("hvd " + who, level)) {}
Log::~Log() = default;

bool Log::enabled(LogLevel level) const { return implementation_->logger.should_log(to_spdlog(level)); }

void Log::write(LogLevel level, std::string_view message) const {
  implementation_->logger.log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

void Log::debug(std::string_view message) const { write(LogLevel::debug, message); }

void Log::info(std::string_view message) const { write(LogLevel::info, message); }

void Log::warning(std::string_view message) const { write(LogLevel::warning, message); }

void Log::error(std::string_view message) const { write(LogLevel::error, message); }

}  // namespace hvd
