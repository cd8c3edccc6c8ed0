#include "tools/bench/report.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace hvd::bench {

namespace {

std::string counted(int number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// A barrier has neither type nor reduction.
const char* dtype_text(const Settings& settings) {
  return settings.collective == Collective::barrier ? "none" : text_of(kDTypes, settings.dtype);
}
const char* op_text(const Settings& settings) { return settings.op ? text_of(kReduceOps, *settings.op) : "none"; }

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  return line.data();
}

std::string settings_line(const Settings& settings) {
  std::string line = "# ";
  if (settings.collective != Collective::barrier) {
    line += settings.arena ? "tensors in the shared arena, " : "tensors in ordinary memory, ";
  }
  if (settings.collective == Collective::allreduce) line += settings.in_place ? "in place, " : "out of place, ";
  if (settings.grouped) line += "one group, ";
  return line + print("%g s a row after %d rounds of warm-up; a time is the slowest rank's\n", settings.seconds,
                      settings.warmup);
}

}  // namespace

std::string heading(const Settings& settings, const Job& job) {
  std::string text = "# hvd " + job.version + " " + text_of(kCollectives, settings.collective) + ", " +
                     counted(job.ranks, "rank") + " on " + counted(job.hosts, "host") + "\n" + settings_line(settings);
  if (job.ranks == 1) text += "# one rank has nobody to talk to: hvd bench -np 4 starts several\n";
  return text + print("#%12s %8s %9s %8s %12s %12s %12s %10s %10s %8s\n", "bytes", "tensors", "dtype", "op", "min us",
                      "median us", "p99 us", "algbw GB/s", "busbw GB/s", "errors");
}

std::string table_row(const Settings& settings, const Measured& row) {
  return print("%13lld %8lld %9s %8s %12.2f %12.2f %12.2f %10.3f %10.3f %8lld%s\n", static_cast<long long>(row.bytes),
               static_cast<long long>(row.tensors), dtype_text(settings), op_text(settings), row.min_us, row.median_us,
               row.p99_us, row.algbw, row.busbw, static_cast<long long>(row.errors), row.errors > 0 ? " WRONG" : "");
}

nlohmann::json to_json(const Settings& settings, const Job& job, const std::vector<Measured>& rows) {
  nlohmann::json results = nlohmann::json::array();
  for (const Measured& row : rows) {
    results.push_back({{"bytes", row.bytes},
                       {"tensors", row.tensors},
                       {"calls", row.calls},
                       {"rounds", row.rounds},
                       {"min_us", row.min_us},
                       {"median_us", row.median_us},
                       {"p99_us", row.p99_us},
                       {"algbw_gb_per_s", row.algbw},
                       {"busbw_gb_per_s", row.busbw},
                       {"errors", row.errors}});
  }
  return {{"program", "hvd bench"},
          {"version", job.version},
          {"ranks", job.ranks},
          {"hosts", job.hosts},
          {"collective", text_of(kCollectives, settings.collective)},
          {"dtype", dtype_text(settings)},
          {"op", op_text(settings)},
          {"in_place", settings.in_place},
          {"grouped", settings.grouped},
          {"arena", settings.arena},
          {"seconds", settings.seconds},
          {"warmup", settings.warmup},
          {"results", results}};
}

}  // namespace hvd::bench
