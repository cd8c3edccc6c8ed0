// Formats results: as a table for people and as JSON for programs. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/bench/measurement.h"

namespace hvd::bench {

struct Job {
  int ranks = 1;
  int hosts = 1;
  std::string version;  // of hvd
};

// Lines that begin with #: what is measured, where, and the names of the columns.
std::string heading(const Settings& settings, const Job& job);
std::string table_row(const Settings& settings, const Measured& row);
nlohmann::json to_json(const Settings& settings, const Job& job, const std::vector<Measured>& rows);

}  // namespace hvd::bench
