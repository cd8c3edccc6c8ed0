#include "ops/choice/host_choice.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"

#include "tests/support/catch.h"

using namespace hvd;

namespace {

using Alternatives = PathTrials::Alternatives;

struct Trial {
  DataPath path;
  double seconds;
};

// Calls of one size until the choice is made. Returns the trials.
std::vector<Trial> try_paths(PathTrials& trials, std::int64_t bytes, Alternatives alternatives,
                             const std::function<double(DataPath, int call)>& seconds) {
  std::vector<Trial> tried;
  for (bool decided = false; !decided;) {
    const PathTrials::Choice choice = trials.choose(bytes, alternatives);
    if (!choice.is_trial) throw Internal("a call without a decision is no trial");
    tried.push_back({choice.path, seconds(choice.path, static_cast<int>(tried.size()))});
    decided = trials.took(bytes, choice, tried.back().seconds);
    if (tried.size() > 100) throw Internal("endless trials");
  }
  if (trials.choose(bytes, alternatives).is_trial) throw Internal("a trial after the decision");
  return tried;
}

int count(const std::vector<Trial>& tried, DataPath path) {
  return static_cast<int>(std::ranges::count(tried, path, &Trial::path));
}

constexpr Alternatives kOrPeerMemory{.peer_memory = true}, kOrAny{.peer_memory = true, .window_streaming = true};

}  // namespace

TEST_CASE("the form of an allreduce inside a host follows from its size") {
  struct Case {
    HostShape host;
    std::int64_t bytes;
    PeerAccess access;
    HostForm form;
  };
  const auto c = GENERATE(values<Case>({
      {{.ranks = 2}, 1, PeerAccess::window, HostForm::inline_payload},
      {{.ranks = 8}, 112, PeerAccess::arena, HostForm::inline_payload},
      {{.ranks = 2}, 113, PeerAccess::window, HostForm::one_step},
      {{.ranks = 2}, 1 << 30, PeerAccess::window, HostForm::one_step},
      {{.ranks = 3}, 16 << 10, PeerAccess::window, HostForm::one_step},
      {{.ranks = 3}, (16 << 10) + 1, PeerAccess::window, HostForm::sliced},
      {{.ranks = 8}, 16 << 10, PeerAccess::window, HostForm::one_step},
      {{.ranks = 9}, 113, PeerAccess::window, HostForm::sliced},
      {{.ranks = 2, .oversubscribed = true}, 112, PeerAccess::window, HostForm::inline_payload},
      {{.ranks = 2, .oversubscribed = true}, 113, PeerAccess::window, HostForm::by_last},
      {{.ranks = 16, .oversubscribed = true}, 32 << 10, PeerAccess::window, HostForm::by_last},
      {{.ranks = 16, .oversubscribed = true}, (32 << 10) + 1, PeerAccess::window, HostForm::sliced},
      {{.ranks = 2}, (128 << 10) - 1, PeerAccess::arena, HostForm::one_step},
      {{.ranks = 4}, (128 << 10) - 1, PeerAccess::memory, HostForm::sliced},
      {{.ranks = 2}, 128 << 10, PeerAccess::arena, HostForm::resident},
      {{.ranks = 16}, 1 << 30, PeerAccess::arena, HostForm::resident},
      {{.ranks = 2}, 128 << 10, PeerAccess::memory, HostForm::reading},
      {{.ranks = 16}, 1 << 30, PeerAccess::memory, HostForm::reading},
      {{.ranks = 4, .oversubscribed = true}, (1 << 20) - 1, PeerAccess::memory, HostForm::sliced},
      {{.ranks = 4, .oversubscribed = true}, 1 << 20, PeerAccess::memory, HostForm::reading},
  }));
  CAPTURE(c.host.ranks, c.host.oversubscribed, c.bytes);
  CHECK(choose_host_form(c.host, c.bytes, c.access) == c.form);
}

TEST_CASE("its lines say what the decision does") {
  const auto names = [](const HostShape& host) {
    std::string text;
    for (const TableLine& line : host_form_lines(host)) {
      text += (text.empty() ? "" : " ") + range_text(line.from, line.to) + "=" + line.name;
      CHECK_FALSE(line.reason.empty());
    }
    return text;
  };
  CHECK(names({.ranks = 1, .arena = true}) == "0-=alone");
  CHECK(names({.ranks = 2}) == "0-113=inline_payload 113-=one_step");
  CHECK(names({.ranks = 4}) == "0-113=inline_payload 113-16385=one_step 16385-=sliced");
  CHECK(names({.ranks = 4, .oversubscribed = true}) == "0-113=inline_payload 113-32769=by_last 32769-=sliced");
  CHECK(names({.ranks = 9}) == "0-113=inline_payload 113-=sliced");
  CHECK(names({.ranks = 4, .arena = true, .reading = true}) ==
        "0-113=inline_payload 113-16385=one_step 16385-=sliced 128k-=resident 128k-=reading");
}

TEST_CASE("the user's form is taken where it is possible, and the lines say so") {
  const SizeRange<HostForm> ranges[] = {{0, 64 << 10, HostForm::sliced}, {256 << 10, kNoLimit, HostForm::one_step}};
  const HostShape host{.ranks = 4, .arena = true, .wanted = ranges};
  CHECK(choose_host_form(host, 8) == HostForm::inline_payload);
  CHECK(choose_host_form(host, 113) == HostForm::sliced);
  CHECK(choose_host_form(host, 64 << 10) == HostForm::sliced);
  CHECK(choose_host_form(host, 128 << 10, PeerAccess::arena) == HostForm::resident);
  CHECK(choose_host_form(host, 256 << 10, PeerAccess::arena) == HostForm::one_step);
  CHECK(
      host_form_text(host, true) ==
      "allreduce by size in bytes, 4 ranks of a host, through shared memory:\n"
      "  0-113      inline_payload  fits beside the step's number, into the cache line that everyone waits for anyway\n"
      "  113-64k    sliced          HVD_ALGORITHM says so\n"
      "  64k-256k   sliced          each rank reduces a slice for all: one more barrier a chunk, but fewer bytes read\n"
      "  256k-      one_step        HVD_ALGORITHM says so\n"
      "  128k-256k  resident        if all tensors lie in the arena: two passes over the data instead of five\n"
      "  HVD_ALGORITHM names algorithms between hosts, which are not used here");
}

TEST_CASE("a form that is not possible for the ranks' memory is not taken") {
  const SizeRange<HostForm> ranges[] = {{0, kNoLimit, HostForm::reading}};
  const HostShape host{.ranks = 4, .wanted = ranges};
  CHECK(choose_host_form(host, 1 << 20) == HostForm::sliced);
  CHECK(choose_host_form(host, 1 << 20, PeerAccess::memory) == HostForm::reading);
}

TEST_CASE("trials: the fastest data path is chosen, for each size by itself") {
  PathTrials trials;
  const auto chosen = [&](std::int64_t bytes, double reading, double streaming) {
    try_paths(trials, bytes, kOrAny, [=](DataPath path, int) {
      return path == DataPath::peer_memory ? reading : path == DataPath::window_streaming ? streaming : 1.0;
    });
    return trials.choose(bytes, kOrAny).path;
  };
  CHECK(chosen(1 << 20, 0.7, 1.5) == DataPath::peer_memory);
  CHECK(chosen(1 << 22, 2.5, 3.0) == DataPath::window);
  CHECK(chosen(1 << 24, 1.0, 1.0) == DataPath::window);
  CHECK(chosen(1 << 26, 1.0, 0.8) == DataPath::window_streaming);
  CHECK(chosen(1 << 28, 1.0, 0.95) == DataPath::window);  // not worth it: what reads the outputs finds them in no cache
  CHECK(chosen(1 << 17, 1.1, 5.0) == DataPath::peer_memory);  // small calls in a row cost more in chunks than alone
  CHECK(trials.choose((1 << 20) + 5, kOrAny).path == DataPath::peer_memory);  // the same power of two
  CHECK(trials.choose(1 << 22, kOrAny).path == DataPath::window);
}

TEST_CASE("trials: a data path that is not possible for a call is not taken, whatever was chosen") {
  PathTrials trials;
  try_paths(trials, 1 << 20, kOrAny, [](DataPath path, int) { return path == DataPath::peer_memory ? 0.7 : 1.0; });
  CHECK(trials.choose(1 << 20, {.window_streaming = true}).path == DataPath::window);

  PathTrials undecided;
  const PathTrials::Choice first = undecided.choose(1 << 20, kOrPeerMemory);
  CHECK(first.path == DataPath::window);
  CHECK_FALSE(undecided.took(1 << 20, first, 1.0));
  const PathTrials::Choice second = undecided.choose(1 << 20, {});  // it would be the turn of the peers' memory
  CHECK(second.path == DataPath::window);
  CHECK_FALSE(second.is_trial);
}

TEST_CASE("trials: the first round does not count, and of the others the fastest call of each data path") {
  PathTrials trials;
  const auto seconds = [](DataPath path, int call) {
    if (call < 2) return path == DataPath::window ? 0.001 : 100.0;
    return path == DataPath::window ? 1.5 : (call == 5 ? 1.0 : 2.5);
  };
  CHECK(try_paths(trials, 1 << 20, kOrPeerMemory, seconds).size() == 8);
  CHECK(trials.choose(1 << 20, kOrPeerMemory).path == DataPath::peer_memory);
}

TEST_CASE("trials: what takes twice as long as the fastest is dropped after a round, and the last that is left is it") {
  PathTrials trials;
  const auto tried = try_paths(trials, 1 << 24, kOrAny, [](DataPath path, int) {
    return path == DataPath::window_streaming ? 2.6 : path == DataPath::peer_memory ? 1.1 : 1.0;
  });
  CHECK(count(tried, DataPath::window) == 4);
  CHECK(count(tried, DataPath::peer_memory) == 4);
  CHECK(count(tried, DataPath::window_streaming) == 1);

  PathTrials clear;
  const auto few = try_paths(clear, 1 << 20, kOrPeerMemory,
                             [](DataPath path, int) { return path == DataPath::peer_memory ? 5.0 : 1.0; });
  CHECK(few.size() == 4);
  CHECK(clear.choose(1 << 20, kOrPeerMemory).path == DataPath::window);
}

TEST_CASE("trials: a call that is chosen and does not take place is chosen again") {
  PathTrials trials;
  const PathTrials::Choice first = trials.choose(1 << 20, kOrPeerMemory);
  trials.took(1 << 20, first, 1.0);
  CHECK(trials.choose(1 << 20, kOrPeerMemory).path == DataPath::peer_memory);
  CHECK(trials.choose(1 << 20, kOrPeerMemory).path == DataPath::peer_memory);
}

TEST_CASE("trials: a decision names the collective, the sizes, the data path and the times of all that were tried") {
  PathTrials trials;
  try_paths(trials, 1 << 20, kOrPeerMemory,
            [](DataPath path, int) { return path == DataPath::peer_memory ? 2e-3 : 3e-3; });
  CHECK(trials.decision_text("allgather", 1 << 20) ==
        "allgather of 1m-2m bytes in shared memory: reading, since it takes 3.0 ms in chunks, 2.0 ms by accessing each "
        "other's memory");
  try_paths(trials, 200'000, {.window_streaming = true},
            [](DataPath path, int) { return path == DataPath::window_streaming ? 2e-3 : 1e-3; });
  CHECK(trials.decision_text("allreduce", 200'000) ==
        "allreduce of 128k-256k bytes in shared memory: chunks, since it takes 1.0 ms in chunks, 2.0 ms in chunks with "
        "outputs that bypass the caches");
}

TEST_CASE("what is tried follows from the collective, the size, and what the host can do") {
  const HostShape host{.ranks = 2, .reading = true, .non_temporal_stores = true};
  const HostShape oversubscribed{.ranks = 4, .oversubscribed = true, .reading = true, .non_temporal_stores = true};
  const HostShape neither{.ranks = 2};
  struct Case {
    Alternatives (*alternatives)(const HostShape&, std::int64_t);
    HostShape host;
    std::int64_t bytes;
    Alternatives expected;
  };
  const auto c = GENERATE_COPY(values<Case>({
      {allreduce_alternatives, host, (128 << 10) - 1, {}},
      {allreduce_alternatives, host, 128 << 10, kOrPeerMemory},
      {allreduce_alternatives, host, 8 << 20, kOrAny},
      {allreduce_alternatives, oversubscribed, (1 << 20) - 1, {}},
      {allreduce_alternatives, oversubscribed, 1 << 20, kOrPeerMemory},
      {move_alternatives, host, (16 << 10) - 1, {}},
      {move_alternatives, host, 16 << 10, kOrPeerMemory},
      {move_alternatives, host, 8 << 20, kOrAny},
      {move_alternatives, oversubscribed, (1 << 20) - 1, {}},
      {move_alternatives, oversubscribed, 1 << 20, kOrPeerMemory},
      {streaming_alternative, host, (8 << 20) - 1, {}},
      {streaming_alternative, host, 8 << 20, {.window_streaming = true}},
      {allreduce_alternatives, neither, 1 << 30, {}},
      {move_alternatives, neither, 1 << 30, {}},
      {streaming_alternative, neither, 1 << 30, {}},
  }));
  const Alternatives alternatives = c.alternatives(c.host, c.bytes);
  CAPTURE(c.bytes, c.host.oversubscribed, alternatives.peer_memory, alternatives.window_streaming);
  CHECK(alternatives.peer_memory == c.expected.peer_memory);
  CHECK(alternatives.window_streaming == c.expected.window_streaming);
}

TEST_CASE("copies: non-temporal stores are used where they take less than half the time, and both are tried") {
  using StoreKind = CopyTrials::StoreKind;
  const auto share_of_streaming = [](double plain, double streaming) {
    CopyTrials trials;
    int streamed = 0;
    for (int chunk = 0; chunk < 640; ++chunk) {
      const StoreKind kind = trials.choose();
      trials.took(kind, kind == StoreKind::plain ? plain : streaming);
      streamed += kind == StoreKind::non_temporal ? 1 : 0;
    }
    return streamed;
  };
  CHECK(share_of_streaming(1.0, 0.6) == 10);
  CHECK(share_of_streaming(1.0, 0.4) > 500);
  CHECK(share_of_streaming(1.0, 15.0) == 10);
}
