#include "ops/choice/algorithm_override.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "core/base/error.h"
#include "ops/choice/table_text.h"

namespace hvd {

namespace {

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
  AlgorithmOverride parse();

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  static std::string quoted(std::string_view part) { return "'" + std::string(part) + "'"; }

  void parse_range(std::string_view part, AlgorithmOverride& result) const;
  std::size_t parse_size(std::string_view size, std::size_t if_empty) const;
  AllreduceAlgorithm parse_name(std::string_view name) const;
  template <typename Algorithm>
  void sort_ranges(std::vector<SizeRange<Algorithm>>& ranges) const;

  const std::string_view text_;
  const bool deterministic_;
};

void Parser::refuse(const std::string& why) const {
  throw InvalidArgument("HVD_ALGORITHM=" + quoted(text_) + ": " + why +
                        "; expected, for instance, 'allreduce:0-64k=direct;64k-=ring', where a size is in bytes or has "
                        "k, m or g, one left out is no limit, and algorithms are " +
                        algorithm_names());
}

std::size_t Parser::parse_size(std::string_view size, std::size_t if_empty) const {
  if (size.empty()) return if_empty;
  std::size_t value = 0;
  const char* const end = size.data() + size.size();
  const auto [suffix, error] = std::from_chars(size.data(), end, value);
  const std::string_view letter(suffix, static_cast<std::size_t>(end - suffix));
  const int shift = letter.empty() ? 0 : letter == "k" ? 10 : letter == "m" ? 20 : letter == "g" ? 30 : -1;
  if (error != std::errc() || shift < 0 || value > (kNoLimit >> shift)) refuse(quoted(size) + " is no size");
  return value << shift;
}

AllreduceAlgorithm Parser::parse_name(std::string_view name) const {
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

void Parser::parse_range(std::string_view part, AlgorithmOverride& result) const {
  const auto equals = part.find('=');
  const auto dash = part.substr(0, equals).find('-');
  if (equals == std::string_view::npos || dash == std::string_view::npos) {
    refuse(quoted(part) + " is not FROM-TO=ALGORITHM");
  }
  const std::size_t from = parse_size(part.substr(0, dash), 0);
  const std::size_t to = parse_size(part.substr(dash + 1, equals - dash - 1), kNoLimit);
  const std::string_view name = part.substr(equals + 1);
  const auto* const form =
      std::find_if(std::begin(kNamedForms), std::end(kNamedForms), [name](HostForm f) { return name == form_name(f); });
  if (form != std::end(kNamedForms)) {
    result.inside_host.push_back({from, to, *form});
  } else {
    result.allreduce.push_back({from, to, parse_name(name)});
  }
  if (from >= to) refuse(quoted(part) + " has no sizes");
}

template <typename Algorithm>
void Parser::sort_ranges(std::vector<SizeRange<Algorithm>>& ranges) const {
  std::ranges::sort(ranges, {}, &SizeRange<Algorithm>::from);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const auto& before = ranges[i - 1];
    if (before.to <= ranges[i].from) continue;
    refuse(quoted(range_text(before.from, before.to)) + " and " + quoted(range_text(ranges[i].from, ranges[i].to)) +
           " overlap");
  }
}

AlgorithmOverride Parser::parse() {
  AlgorithmOverride result;
  if (text_.empty()) return result;
  if (!text_.starts_with(kCollective)) refuse("it does not begin with 'allreduce:', the one collective with a choice");
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

}  // namespace

AlgorithmOverride parse_algorithm_override(std::string_view text, bool deterministic) {
  return Parser(text, deterministic).parse();
}

}  // namespace hvd
