#include "ops/choice/host_choice.h"

#include <functional>
#include <string>

#include "core/base/error.h"

#include "tests/support/catch.h"

using namespace hvd;

namespace {

using Form = FormTrials::Form;

// Calls of one size until the choice is made.
Form choice_after(FormTrials& trials, std::int64_t bytes, const std::function<double(Form, int call)>& seconds) {
  for (int call = 0;; ++call) {
    const FormTrials::Choice choice = trials.choose(bytes);
    if (!choice.is_trial) return choice.form;
    trials.took(bytes, choice.form, seconds(choice.form, call));
    if (choice.is_last) trials.agree("allreduce", bytes, trials.costs(bytes));
    if (call > 100) throw Internal("endless trials");
  }
}

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

TEST_CASE("trials: the cheaper form is chosen, for each size by itself") {
  FormTrials trials;
  const auto reading_is = [](double cost) {
    return [cost](Form form, int) { return form == Form::reading ? cost : 1.0; };
  };
  CHECK(choice_after(trials, 1 << 20, reading_is(0.5)) == Form::reading);
  CHECK(choice_after(trials, 1 << 22, reading_is(2.0)) == Form::chunks);
  CHECK(choice_after(trials, 1 << 24, reading_is(1.0)) == Form::chunks);
  CHECK(trials.choose((1 << 20) + 5).form == Form::reading);  // the same power of two
  CHECK(trials.choose(1 << 22).form == Form::chunks);
}

TEST_CASE("trials: the first call of each form does not count, and of the others the fastest") {
  FormTrials trials;
  const auto seconds = [](Form form, int call) {
    if (call < 2) return form == Form::chunks ? 0.001 : 100.0;
    return form == Form::chunks ? 2.0 : (call == 5 ? 1.0 : 50.0);
  };
  CHECK(choice_after(trials, 1 << 20, seconds) == Form::reading);
}

TEST_CASE("trials: what counts is the cost of all ranks") {
  FormTrials trials;
  while (trials.choose(1 << 20).is_trial) {
  }
  trials.agree("allreduce", 1 << 20, {3.0, 2.5});
  CHECK(trials.choose(1 << 20).form == Form::reading);
}

TEST_CASE("trials: a decision names the collective, the sizes, the form and both costs") {
  FormTrials trials;
  CHECK(trials.agree("allgather", 1 << 20, {3e-3, 2e-3}) ==
        "allgather of 1m-2m bytes in shared memory: reading, since the ranks' times add up to 2.0 ms by reading each "
        "other's memory, 3.0 ms in chunks");
  CHECK(
      trials.agree("allreduce", 200'000, {1e-3, 2e-3}).find("allreduce of 128k-256k bytes in shared memory: chunks") ==
      0);
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
