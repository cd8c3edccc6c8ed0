#include "tools/bench/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <stdexcept>

#include "tools/bench/reference.h"

namespace hvd::bench {

namespace {

constexpr std::uint64_t kMaxTensors = 100'000;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;

// A positive integer, and the text that follows it.
struct Count {
  std::uint64_t value;
  std::string rest;
};

std::optional<Count> parse_count(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value == 0) return std::nullopt;
  return Count{value, std::string(rest, end)};
}

// Returns 0 if the unit is unknown.
std::uint64_t parse_unit(std::string unit) {
  for (char& letter : unit) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  if (unit.empty() || unit == "b") return 1;
  const auto power = std::string_view("kmgt").find(unit.front());
  const std::string rest = unit.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return 0;
  return std::uint64_t{1024} << 10 * power;
}

constexpr double kMaxSeconds = 1e6;
constexpr int kMaxWarmup = 1'000'000;

const char* const kUsage = R"(Usage: hvd bench [-np N] [collective] [options]
       hvdrun -np N [options of hvdrun] hvd bench [collective] [options])";

const char* const kExplanation =
    R"(Collectives: allreduce (if none is given), allgather, broadcast, reducescatter, alltoall, barrier. A size is that of
the larger of a rank's buffers; K, M and G are powers of 1024.
Examples:
  hvd bench -np 4 allreduce -b 8 -e 64M -f 4
  hvd bench -np 4 allreduce --tensors resnet50 --in-place --arena --plot resnet50.png
  hvdrun -np 4 -x HVD_FUSION_THRESHOLD=0 hvd bench allreduce --tensors 100x64MB --json unfused.json

`hvd bench` has two more options: --plot FILE (.png, .pdf, .svg) draws the results with matplotlib; --training shows
where the time of a training step with PyTorch goes, and has options of its own (hvd bench --training --help).
docs/benchmark.md says what the columns mean. The exit code is 1 if a result was wrong, 2 if these arguments are.)";

// The unchecked text of the options.
struct Texts {
  std::string collective = "allreduce";
  std::string dtype = "float32";
  std::string op = "sum";
  std::string min_bytes = "8";
  std::string max_bytes = "64M";
  std::uint64_t factor = 2;
  std::vector<std::string> sizes;
  std::string tensors;
  bool version = false;
};

void add_options_of_work(CLI::App& app, Settings& settings, Texts& texts) {
  const char* const group = "What to measure";
  app.add_option("collective", texts.collective)->group("");
  app.add_option("-d,--dtype", texts.dtype,
                 "uint8, int8, int16, int32, int64, float16, bfloat16,\n"
                 "float32 (default), float64, bool")
      ->check(CLI::IsMember(all_texts(kDTypes)))
      ->option_text("TYPE")
      ->group(group);
  app.add_option("-o,--op", texts.op, "sum (default), average, min, max, product")
      ->check(CLI::IsMember(all_texts(kReduceOps)))
      ->option_text("OP")
      ->group(group);
  app.add_flag("--in-place", settings.in_place, "allreduce: the results over the inputs")->group(group);
  app.add_flag("--arena", settings.arena, "Tensors in the memory that the ranks of a host share")->group(group);
}

void add_options_of_sizes(CLI::App& app, Settings& settings, Texts& texts) {
  const char* const group = "How much";
  app.add_option("-b,--min-bytes", texts.min_bytes, "The first size. Default: 8")->option_text("SIZE")->group(group);
  app.add_option("-e,--max-bytes", texts.max_bytes, "Up to this size. Default: 64M")->option_text("SIZE")->group(group);
  app.add_option("-f,--factor", texts.factor, "From each size to the next. Default: 2")->option_text("F")->group(group);
  app.add_option("--sizes", texts.sizes, "These sizes instead, for instance 8,1K,4M")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->option_text("SIZE,...")
      ->group(group);
  app.add_option("--tensors", texts.tensors,
                 "Several tensors instead, each an operation of its own,\n"
                 "so that they are fused: resnet50, its 161 gradients; or,\n"
                 "for instance, 100x64MB: 100 tensors of 64 MB in all")
      ->option_text("SET")
      ->group(group);
  app.add_flag("--grouped", settings.grouped, "allreduce in place: a row's tensors as one group")->group(group);
}

void add_other_options(CLI::App& app, Settings& settings, Texts& texts) {
  app.add_option("--np", settings.ranks, "Start N ranks with hvdrun, on this machine; -np N")
      ->option_text("N")
      ->group("How to measure");
  app.add_option("--seconds", settings.seconds, "For each row, about. Default: 0.5")
      ->option_text("S")
      ->group("How to measure");
  app.add_option("-w,--warmup", settings.warmup, "Rounds before those that count. Default: 2")
      ->check(CLI::Range(0, kMaxWarmup))
      ->option_text("N")
      ->group("How to measure");
  app.add_option("--json", settings.json, "Write the results into this file too")->option_text("FILE")->group("Output");
  app.set_help_flag("-h,--help", "Print this text")->group("About hvd bench");
  app.add_flag("--version", texts.version, "Print its version")->group("About hvd bench");
}

// CLI11's table of options, without the text that it derives from the positional argument.
std::string help_text(const CLI::App& app) {
  CLI::Formatter formatter;
  formatter.column_width(28);
  std::string options = formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  for (auto gap = options.find("\n\n\n"); gap != std::string::npos; gap = options.find("\n\n\n")) options.erase(gap, 1);
  return std::string(kUsage) + "\n" + options + "\n" + kExplanation + "\n";
}

// Throws if one of the options was given.
void refuse(const CLI::App& app, const std::vector<std::string>& names, const std::string& why) {
  for (const std::string& name : names) {
    if (app.count(name) > 0) throw std::invalid_argument(name + ": " + why);
  }
}

void check(const CLI::App& app, const Settings& settings) {
  const hvd_collective collective = settings.collective;
  if (settings.ranks && *settings.ranks < 1) {
    throw std::invalid_argument("-np " + std::to_string(*settings.ranks) + ": at least one rank");
  }
  if (!(settings.seconds >= 0 && settings.seconds <= kMaxSeconds)) {  // also rejects NaN
    throw std::invalid_argument("--seconds: a number of seconds, 0 or more");
  }
  if (collective == HVD_BARRIER) {
    refuse(app, {"--dtype", "--arena", "--min-bytes", "--max-bytes", "--factor", "--sizes", "--tensors"},
           "a barrier has no tensors");
  }
  if (!reduces(collective)) refuse(app, {"--op"}, "only allreduce and reducescatter reduce");
  if (collective != HVD_ALLREDUCE) {
    refuse(app, {"--in-place"}, "for allreduce (broadcast works in place anyway, the others never do)");
    refuse(app, {"--grouped"}, "for allreduce");
  }
  if (settings.dtype == HVD_BOOL && settings.op && settings.op != min && settings.op != max) {
    throw std::invalid_argument("bool is reduced by --op min and --op max only");
  }
  if (app.count("--tensors") > 0) {
    refuse(app, {"--min-bytes", "--max-bytes", "--factor", "--sizes"}, "--tensors says the size");
  }
  if (app.count("--sizes") > 0) refuse(app, {"--min-bytes", "--max-bytes", "--factor"}, "--sizes lists all sizes");
}

std::vector<TensorSet> rows(const Settings& settings, const Texts& texts) {
  if (settings.collective == HVD_BARRIER) return {TensorSet()};
  const std::size_t element_size = size_of(settings.dtype);
  if (!texts.tensors.empty()) return {parse_tensor_set(texts.tensors, element_size)};
  std::vector<std::uint64_t> sizes;
  for (const std::string& size : texts.sizes) sizes.push_back(parse_size(size));
  if (sizes.empty()) sizes = size_range(parse_size(texts.min_bytes), parse_size(texts.max_bytes), texts.factor);
  std::vector<TensorSet> rows;
  for (const std::uint64_t bytes : sizes) rows.push_back({static_cast<std::int64_t>(bytes / element_size)});
  return rows;
}

void parse(CLI::App& app, std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "-np" || argument.starts_with("-np=")) argument.insert(0, "-");  // the spelling of mpirun
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  app.parse(arguments);
}

}  // namespace

std::size_t size_of(hvd_dtype dtype) {
  return with_type(dtype, []<typename T>(std::type_identity<T>) { return sizeof(T); });
}

bool reduces(hvd_collective collective) { return collective == HVD_ALLREDUCE || collective == HVD_REDUCESCATTER; }

bool divides(hvd_collective collective) {
  return collective == HVD_ALLGATHER || collective == HVD_REDUCESCATTER || collective == HVD_ALLTOALL;
}

double busbw_factor(hvd_collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case HVD_ALLREDUCE: return 2 * others;
    case HVD_ALLGATHER:
    case HVD_REDUCESCATTER:
    case HVD_ALLTOALL: return others;
    default: return 1;
  }
}

std::uint64_t parse_size(const std::string& text) {
  const auto count = parse_count(text);
  const std::uint64_t unit = count ? parse_unit(count->rest) : 0;
  if (unit == 0 || count->value > kMaxBytes / unit) {
    throw std::invalid_argument("\"" + text + "\" is no number of bytes, such as 8, 64K or 1M");
  }
  return count->value * unit;
}

std::vector<std::uint64_t> size_range(std::uint64_t first, std::uint64_t last, std::uint64_t factor) {
  if (factor < 2) throw std::invalid_argument("-f " + std::to_string(factor) + ": sizes grow by a factor of 2 or more");
  if (first > last) {
    throw std::invalid_argument("-b " + std::to_string(first) + " is more than -e " + std::to_string(last));
  }
  std::vector<std::uint64_t> sizes{first};
  while (sizes.back() <= last / factor) sizes.push_back(sizes.back() * factor);
  return sizes;
}

TensorSet parse_tensor_set(const std::string& text, std::size_t element_size) {
  if (text == "resnet50") return resnet50();
  const auto count = parse_count(text);
  if (!count || count->value > kMaxTensors || !count->rest.starts_with('x')) {
    throw std::invalid_argument("--tensors " + text + ": neither resnet50 nor, for instance, 100x64MB");
  }
  const std::uint64_t bytes = parse_size(count->rest.substr(1));
  return TensorSet(count->value, static_cast<std::int64_t>(bytes / count->value / element_size));
}

// K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition, 2016, table 1.
TensorSet resnet50() {
  TensorSet set;
  const auto add_convolution = [&set](std::int64_t inputs, std::int64_t outputs, std::int64_t kernel) {
    set.push_back(inputs * outputs * kernel * kernel);
    set.insert(set.end(), 2, outputs);  // scale and shift of the batch normalisation that follows
  };
  add_convolution(3, 64, 7);
  std::int64_t channels = 64;
  std::int64_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      add_convolution(channels, width, 1);
      add_convolution(width, width, 3);
      add_convolution(width, 4 * width, 1);
      if (block == 0) add_convolution(channels, 4 * width, 1);  // the shortcut past these three
      channels = 4 * width;
    }
    width *= 2;
  }
  set.insert(set.end(), {channels * 1000, 1000});
  std::reverse(set.begin(), set.end());
  return set;
}

TensorSet divisible(TensorSet set, int parts) {
  for (std::int64_t& elements : set) elements = std::max<std::int64_t>(elements / parts, 1) * parts;
  return set;
}

Settings parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app;
  Settings settings;
  Texts texts;
  add_options_of_work(app, settings, texts);
  add_options_of_sizes(app, settings, texts);
  add_other_options(app, settings, texts);
  try {
    parse(app, arguments);
  } catch (const CLI::CallForHelp&) {
    settings.information = help_text(app);
    return settings;
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(error.what());
  }
  if (texts.version) {
    settings.information = std::string("hvd bench ") + hvd_version() + "\n";
    return settings;
  }
  const auto collective = find(kCollectives, texts.collective);
  if (!collective) {
    throw std::invalid_argument(texts.collective +
                                ": allreduce, allgather, broadcast, reducescatter, alltoall or barrier");
  }
  settings.collective = *collective;
  settings.dtype = find(kDTypes, texts.dtype).value();
  if (reduces(settings.collective)) settings.op = find(kReduceOps, texts.op);
  check(app, settings);
  settings.in_place |= settings.grouped;
  settings.rows = rows(settings, texts);
  return settings;
}

}  // namespace hvd::bench
