#include "ops/choice/algorithm_ranges.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "core/base/error.h"

namespace hvd {

namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// Uses the first unit, each a thousand times the previous one, in which the value is less than a thousand.
std::string scaled(double value, const std::array<const char*, 3>& units) {
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && value >= 999.5; ++unit) value /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, value < 9.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return text;
}

constexpr std::string_view kCollective = "allreduce:";

std::string algorithm_names() {
  std::string between, inside;
  for (const AllreduceAlgorithm algorithm : kAllreduceAlgorithms) {
    between += (between.empty() ? "" : ", ") + std::string(algorithm_name(algorithm));
  }
  for (const HostForm form : kNamedForms) inside += (inside.empty() ? "" : ", ") + std::string(form_name(form));
  return between + " between hosts, and " + inside + " inside a host";
}

class Parser {
 public:
  Parser(std::string_view text, bool deterministic) : text_(text), deterministic_(deterministic) {}
  AlgorithmOverride parse() {
    AlgorithmOverride result;
    if (text_.empty()) return result;
    if (!text_.starts_with(kCollective))
      refuse("it does not begin with 'allreduce:', the one collective with a choice");
    for (std::string_view rest = text_.substr(kCollective.size());;) {
      const auto end = rest.find(';');
      parse_range(rest.substr(0, end), result);
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
    sort_ranges(result.allreduce);
    sort_ranges(result.inside_host);
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument(
        "HVD_ALGORITHM=" + quoted(text_) + ": " + why +
        "; expected, for instance, 'allreduce:0-64k=direct;64k-=ring', where a size is in bytes or has "
        "k, m or g, one left out is no limit, and algorithms are " +
        algorithm_names());
  }

  static std::string quoted(std::string_view part) { return "'" + std::string(part) + "'"; }

  void parse_range(std::string_view part, AlgorithmOverride& result) const {
    const auto equals = part.find('=');
    const auto dash = part.substr(0, equals).find('-');
    if (equals == std::string_view::npos || dash == std::string_view::npos) {
      refuse(quoted(part) + " is not FROM-TO=ALGORITHM");
    }
    const std::size_t from = parse_size(part.substr(0, dash), 0);
    const std::size_t to = parse_size(part.substr(dash + 1, equals - dash - 1), kNoLimit);
    const std::string_view name = part.substr(equals + 1);
    const auto* const form = std::find_if(std::begin(kNamedForms), std::end(kNamedForms),
                                          [name](HostForm f) { return name == form_name(f); });
    if (form != std::end(kNamedForms)) {
      result.inside_host.push_back({from, to, *form});
    } else {
      result.allreduce.push_back({from, to, parse_name(name)});
    }
    if (from >= to) refuse(quoted(part) + " has no sizes");
  }

  std::size_t parse_size(std::string_view size, std::size_t if_empty) const {
    if (size.empty()) return if_empty;
    std::size_t value = 0;
    const char* const end = size.data() + size.size();
    const auto [suffix, error] = std::from_chars(size.data(), end, value);
    const std::string_view letter(suffix, static_cast<std::size_t>(end - suffix));
    const int shift = letter.empty() ? 0 : letter == "k" ? 10 : letter == "m" ? 20 : letter == "g" ? 30 : -1;
    if (error != std::errc() || shift < 0 || value > (kNoLimit >> shift)) refuse(quoted(size) + " is no size");
    return value << shift;
  }

  AllreduceAlgorithm parse_name(std::string_view name) const {
    const auto* const found = std::find_if(std::begin(kAllreduceAlgorithms), std::end(kAllreduceAlgorithms),
                                           [name](AllreduceAlgorithm a) { return name == algorithm_name(a); });
    if (found == std::end(kAllreduceAlgorithms)) refuse(quoted(name) + " is no algorithm");
    if (deterministic_ && !keeps_order(*found)) {
      refuse(quoted(name) +
             " does not add in the order of the others, so results would depend on the message's size and "
             "on fusion, which HVD_DETERMINISTIC=1 forbids: set HVD_DETERMINISTIC=0 to have it");
    }
    return *found;
  }

  template <typename Algorithm>
  void sort_ranges(std::vector<SizeRange<Algorithm>>& ranges) const {
    std::ranges::sort(ranges, {}, &SizeRange<Algorithm>::from);
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      const auto& before = ranges[i - 1];
      if (before.to <= ranges[i].from) continue;
      refuse(quoted(range_text(before.from, before.to)) + " and " + quoted(range_text(ranges[i].from, ranges[i].to)) +
             " overlap");
    }
  }

  const std::string_view text_;
  const bool deterministic_;
};

}  // namespace

const char* form_name(HostForm form) {
  switch (form) {
    case HostForm::inline_payload: return "inline_payload";
    case HostForm::by_last: return "by_last";
    case HostForm::one_step: return "one_step";
    case HostForm::sliced: return "sliced";
    case HostForm::resident: return "resident";
    case HostForm::reading: return "reading";
  }
  return "unknown";
}

const SizeRange<AllreduceAlgorithm>* AlgorithmOverride::find(std::size_t bytes) const {
  return find_range<AllreduceAlgorithm>(allreduce, bytes);
}

AlgorithmOverride parse_algorithm_override(std::string_view text, bool deterministic) {
  return Parser(text, deterministic).parse();
}

std::string size_text(std::size_t bytes) {
  const char* const suffixes[] = {"", "k", "m", "g"};
  std::size_t power = 0;
  for (; power < 3 && bytes > 0 && bytes % 1024 == 0; ++power) bytes /= 1024;
  return std::to_string(bytes) + suffixes[power];
}

std::string range_text(std::size_t from, std::size_t to) {
  return size_text(from) + "-" + (to == kNoLimit ? "" : size_text(to));
}

std::string time_text(double seconds) { return scaled(seconds * 1e6, {"us", "ms", "s"}); }

std::string rate_text(double seconds_per_byte) { return scaled(1e-6 / seconds_per_byte, {"MB/s", "GB/s", "TB/s"}); }

std::string table_text(std::span<const TableLine> lines) {
  std::size_t range_width = 0, name_width = 0;
  for (const TableLine& line : lines) {
    range_width = std::max(range_width, range_text(line.from, line.to).size());
    name_width = std::max(name_width, line.name.size());
  }
  std::string text;
  for (const TableLine& line : lines) {
    text += "  " + padded(range_text(line.from, line.to), range_width) + "  " + padded(line.name, name_width) + "  " +
            line.reason + "\n";
  }
  return text;
}

}  // namespace hvd
