#include "launcher/job/output_tag.h"

#include <array>

namespace hvd::launcher {
namespace {

// From the colour cube (16 to 231), which is the same on all terminals; users customize the first sixteen colours.
// Ordered so that neighbours differ most: blue, brown, green, pink, teal, red, violet, olive.
constexpr std::array<int, 8> kPalette{27, 130, 28, 162, 30, 160, 129, 100};

}  // namespace

bool allows_colours(const Environment& environment) {
  const auto value = [&](const char* name) {
    const auto entry = environment.find(name);
    return entry == environment.end() ? std::string() : entry->second;
  };
  const std::string terminal = value("TERM");
  return value("NO_COLOR").empty() && !terminal.empty() && terminal != "dumb";
}

int colour_of_rank(int rank) { return kPalette[static_cast<std::size_t>(rank) % kPalette.size()]; }

const char* stream_name(Stream stream) { return stream == Stream::output ? "stdout" : "stderr"; }

std::string output_tag(int rank, Stream stream, bool coloured) {
  const std::string tag = "[" + std::to_string(rank) + "]<" + stream_name(stream) + ">:";
  if (!coloured) return tag + " ";
  return "\x1b[38;5;" + std::to_string(colour_of_rank(rank)) + "m" + tag + "\x1b[39m ";
}

}  // namespace hvd::launcher
