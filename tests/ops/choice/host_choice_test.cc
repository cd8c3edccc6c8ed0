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

using Form = FormTrials::Form;
using Alternatives = FormTrials::Alternatives;

struct Trial {
  Form form;
  double seconds;
};

// Calls of one size until the choice is made. Returns the trials.
std::vector<Trial> try_forms(FormTrials& trials, std::int64_t bytes, Alternatives alternatives,
                             const std::function<double(Form, int call)>& seconds) {
  std::vector<Trial> tried;
  for (bool decided = false; !decided;) {
    const FormTrials::Choice choice = trials.choose(bytes, alternatives);
    if (!choice.is_trial) throw Internal("a call without a decision is no trial");
    tried.push_back({choice.form, seconds(choice.form, static_cast<int>(tried.size()))});
    decided = trials.took(bytes, choice, tried.back().seconds);
    if (tried.size() > 100) throw Internal("endless trials");
  }
  if (trials.choose(bytes, alternatives).is_trial) throw Internal("a trial after the decision");
  return tried;
}

int count(const std::vector<Trial>& tried, Form form) {
  return static_cast<int>(std::ranges::count(tried, form, &Trial::form));
}

constexpr Alternatives kOrReading{.reading = true}, kOrAny{.reading = true, .streaming = true};

}  // namespace

TEST_CASE("the form of an allreduce inside a host follows from its size") {
  struct Case {
    HostShape host;
    std::int64_t bytes;
    Reach reach;
    HostForm form;
  };
  const auto c = GENERATE(values<Case>({
      {{.ranks = 2}, 1, Reach::chunks, HostForm::note},
      {{.ranks = 8}, 112, Reach::arena, HostForm::note},
      {{.ranks = 2}, 113, Reach::chunks, HostForm::one_step},
      {{.ranks = 2}, 1 << 30, Reach::chunks, HostForm::one_step},
      {{.ranks = 3}, 16 << 10, Reach::chunks, HostForm::one_step},
      {{.ranks = 3}, (16 << 10) + 1, Reach::chunks, HostForm::sliced},
      {{.ranks = 8}, 16 << 10, Reach::chunks, HostForm::one_step},
      {{.ranks = 9}, 113, Reach::chunks, HostForm::sliced},
      {{.ranks = 2, .oversubscribed = true}, 112, Reach::chunks, HostForm::note},
      {{.ranks = 2, .oversubscribed = true}, 113, Reach::chunks, HostForm::by_last},
      {{.ranks = 16, .oversubscribed = true}, 32 << 10, Reach::chunks, HostForm::by_last},
      {{.ranks = 16, .oversubscribed = true}, (32 << 10) + 1, Reach::chunks, HostForm::sliced},
      {{.ranks = 2}, (128 << 10) - 1, Reach::arena, HostForm::one_step},
      {{.ranks = 4}, (128 << 10) - 1, Reach::memory, HostForm::sliced},
      {{.ranks = 2}, 128 << 10, Reach::arena, HostForm::resident},
      {{.ranks = 16}, 1 << 30, Reach::arena, HostForm::resident},
      {{.ranks = 2}, 128 << 10, Reach::memory, HostForm::reading},
      {{.ranks = 16}, 1 << 30, Reach::memory, HostForm::reading},
      {{.ranks = 4, .oversubscribed = true}, (1 << 20) - 1, Reach::memory, HostForm::sliced},
      {{.ranks = 4, .oversubscribed = true}, 1 << 20, Reach::memory, HostForm::reading},
  }));
  CAPTURE(c.host.ranks, c.host.oversubscribed, c.bytes);
  CHECK(choose_host_form(c.host, c.bytes, c.reach) == c.form);
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
  CHECK(names({.ranks = 2}) == "0-113=note 113-=one_step");
  CHECK(names({.ranks = 4}) == "0-113=note 113-16385=one_step 16385-=sliced");
  CHECK(names({.ranks = 4, .oversubscribed = true}) == "0-113=note 113-32769=by_last 32769-=sliced");
  CHECK(names({.ranks = 9}) == "0-113=note 113-=sliced");
  CHECK(names({.ranks = 4, .arena = true, .reading = true}) ==
        "0-113=note 113-16385=one_step 16385-=sliced 128k-=resident 128k-=reading");
}

TEST_CASE("the user's form is taken where it is possible, and the lines say so") {
  const SizeRange<HostForm> ranges[] = {{0, 64 << 10, HostForm::sliced}, {256 << 10, kNoLimit, HostForm::one_step}};
  const HostShape host{.ranks = 4, .arena = true, .wanted = ranges};
  CHECK(choose_host_form(host, 8) == HostForm::note);
  CHECK(choose_host_form(host, 113) == HostForm::sliced);
  CHECK(choose_host_form(host, 64 << 10) == HostForm::sliced);
  CHECK(choose_host_form(host, 128 << 10, Reach::arena) == HostForm::resident);
  CHECK(choose_host_form(host, 256 << 10, Reach::arena) == HostForm::one_step);
  CHECK(host_form_text(host, true) ==
        "allreduce by size in bytes, 4 ranks of a host, through shared memory:\n"
        "  0-113      note      fits beside the step's number, into the cache line that everyone waits for anyway\n"
        "  113-64k    sliced    HVD_ALGORITHM says so\n"
        "  64k-256k   sliced    each rank reduces a slice for all: one more barrier a chunk, but fewer bytes read\n"
        "  256k-      one_step  HVD_ALGORITHM says so\n"
        "  128k-256k  resident  if all tensors lie in the arena: two passes over the data instead of five\n"
        "  HVD_ALGORITHM names algorithms between hosts, which are not used here");
}

TEST_CASE("a form that is not possible for the ranks' memory is not taken") {
  const SizeRange<HostForm> ranges[] = {{0, kNoLimit, HostForm::reading}};
  const HostShape host{.ranks = 4, .wanted = ranges};
  CHECK(choose_host_form(host, 1 << 20) == HostForm::sliced);
  CHECK(choose_host_form(host, 1 << 20, Reach::memory) == HostForm::reading);
}

TEST_CASE("trials: the fastest form is chosen, for each size by itself") {
  FormTrials trials;
  const auto chosen = [&](std::int64_t bytes, double reading, double streaming) {
    try_forms(trials, bytes, kOrAny, [=](Form form, int) {
      return form == Form::reading ? reading : form == Form::streaming ? streaming : 1.0;
    });
    return trials.choose(bytes, kOrAny).form;
  };
  CHECK(chosen(1 << 20, 0.7, 1.5) == Form::reading);
  CHECK(chosen(1 << 22, 2.5, 3.0) == Form::chunks);
  CHECK(chosen(1 << 24, 1.0, 1.0) == Form::chunks);
  CHECK(chosen(1 << 26, 1.0, 0.8) == Form::streaming);
  CHECK(chosen(1 << 28, 1.0, 0.95) == Form::chunks);  // not worth it: what reads the outputs finds them in no cache
  CHECK(chosen(1 << 17, 1.1, 5.0) == Form::reading);  // small calls in a row cost more in chunks than alone
  CHECK(trials.choose((1 << 20) + 5, kOrAny).form == Form::reading);  // the same power of two
  CHECK(trials.choose(1 << 22, kOrAny).form == Form::chunks);
}

TEST_CASE("trials: a form that is not possible for a call is not taken, whatever was chosen") {
  FormTrials trials;
  try_forms(trials, 1 << 20, kOrAny, [](Form form, int) { return form == Form::reading ? 0.7 : 1.0; });
  CHECK(trials.choose(1 << 20, {.streaming = true}).form == Form::chunks);

  FormTrials undecided;
  const FormTrials::Choice first = undecided.choose(1 << 20, kOrReading);
  CHECK(first.form == Form::chunks);
  CHECK_FALSE(undecided.took(1 << 20, first, 1.0));
  const FormTrials::Choice second = undecided.choose(1 << 20, {});  // it would be the turn of reading
  CHECK(second.form == Form::chunks);
  CHECK_FALSE(second.is_trial);
}

TEST_CASE("trials: the first round does not count, and of the others the fastest call of each form") {
  FormTrials trials;
  const auto seconds = [](Form form, int call) {
    if (call < 2) return form == Form::chunks ? 0.001 : 100.0;
    return form == Form::chunks ? 1.5 : (call == 5 ? 1.0 : 2.5);
  };
  CHECK(try_forms(trials, 1 << 20, kOrReading, seconds).size() == 8);
  CHECK(trials.choose(1 << 20, kOrReading).form == Form::reading);
}

TEST_CASE("trials: what takes twice as long as the fastest is dropped after a round, and the last that is left is it") {
  FormTrials trials;
  const auto tried = try_forms(trials, 1 << 24, kOrAny, [](Form form, int) {
    return form == Form::streaming ? 2.6 : form == Form::reading ? 1.1 : 1.0;
  });
  CHECK(count(tried, Form::chunks) == 4);
  CHECK(count(tried, Form::reading) == 4);
  CHECK(count(tried, Form::streaming) == 1);

  FormTrials clear;
  const auto few =
      try_forms(clear, 1 << 20, kOrReading, [](Form form, int) { return form == Form::reading ? 5.0 : 1.0; });
  CHECK(few.size() == 4);
  CHECK(clear.choose(1 << 20, kOrReading).form == Form::chunks);
}

TEST_CASE("trials: a call that is chosen and does not take place is chosen again") {
  FormTrials trials;
  const FormTrials::Choice first = trials.choose(1 << 20, kOrReading);
  trials.took(1 << 20, first, 1.0);
  CHECK(trials.choose(1 << 20, kOrReading).form == Form::reading);
  CHECK(trials.choose(1 << 20, kOrReading).form == Form::reading);
}

TEST_CASE("trials: a decision names the collective, the sizes, the form and the times of all that were tried") {
  FormTrials trials;
  try_forms(trials, 1 << 20, kOrReading, [](Form form, int) { return form == Form::reading ? 2e-3 : 3e-3; });
  CHECK(trials.decision_text("allgather", 1 << 20) ==
        "allgather of 1m-2m bytes in shared memory: reading, since it takes 3.0 ms in chunks, 2.0 ms by accessing each "
        "other's memory");
  try_forms(trials, 200'000, {.streaming = true}, [](Form form, int) { return form == Form::streaming ? 2e-3 : 1e-3; });
  CHECK(trials.decision_text("allreduce", 200'000) ==
        "allreduce of 128k-256k bytes in shared memory: chunks, since it takes 1.0 ms in chunks, 2.0 ms in chunks with "
        "outputs that bypass the caches");
}

TEST_CASE("what is tried follows from the collective, the size, and what the host can do") {
  const HostShape host{.ranks = 2, .reading = true, .streaming = true};
  const HostShape oversubscribed{.ranks = 4, .oversubscribed = true, .reading = true, .streaming = true};
  const HostShape neither{.ranks = 2};
  struct Case {
    Alternatives (*alternatives)(const HostShape&, std::int64_t);
    HostShape host;
    std::int64_t bytes;
    Alternatives expected;
  };
  const auto c = GENERATE_COPY(values<Case>({
      {allreduce_alternatives, host, (128 << 10) - 1, {}},
      {allreduce_alternatives, host, 128 << 10, kOrReading},
      {allreduce_alternatives, host, 8 << 20, kOrAny},
      {allreduce_alternatives, oversubscribed, (1 << 20) - 1, {}},
      {allreduce_alternatives, oversubscribed, 1 << 20, kOrReading},
      {move_alternatives, host, (16 << 10) - 1, {}},
      {move_alternatives, host, 16 << 10, kOrReading},
      {move_alternatives, host, 8 << 20, kOrAny},
      {move_alternatives, oversubscribed, (1 << 20) - 1, {}},
      {move_alternatives, oversubscribed, 1 << 20, kOrReading},
      {streaming_alternative, host, (8 << 20) - 1, {}},
      {streaming_alternative, host, 8 << 20, {.streaming = true}},
      {allreduce_alternatives, neither, 1 << 30, {}},
      {move_alternatives, neither, 1 << 30, {}},
      {streaming_alternative, neither, 1 << 30, {}},
  }));
  const Alternatives alternatives = c.alternatives(c.host, c.bytes);
  CAPTURE(c.bytes, c.host.oversubscribed, alternatives.reading, alternatives.streaming);
  CHECK(alternatives.reading == c.expected.reading);
  CHECK(alternatives.streaming == c.expected.streaming);
}

TEST_CASE("copies: streaming stores are used where they take less than half the time, and both are tried") {
  using Way = CopyTrials::Way;
  const auto share_of_streaming = [](double plain, double streaming) {
    CopyTrials trials;
    int streamed = 0;
    for (int chunk = 0; chunk < 640; ++chunk) {
      const Way way = trials.choose();
      trials.took(way, way == Way::plain ? plain : streaming);
      streamed += way == Way::streaming ? 1 : 0;
    }
    return streamed;
  };
  CHECK(share_of_streaming(1.0, 0.6) == 10);
  CHECK(share_of_streaming(1.0, 0.4) > 500);
  CHECK(share_of_streaming(1.0, 15.0) == 10);
}
