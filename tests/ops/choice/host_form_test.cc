#include "ops/choice/host_form.h"

#include <string>

#include "tests/support/catch.h"

using namespace hvd;

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
        "  HVD_ALGORITHM also names algorithms between hosts, which are not used here");
}

TEST_CASE("a form that is not possible for the ranks' memory is not taken") {
  const SizeRange<HostForm> ranges[] = {{0, kNoLimit, HostForm::reading}};
  const HostShape host{.ranks = 4, .wanted = ranges};
  CHECK(choose_host_form(host, 1 << 20) == HostForm::sliced);
  CHECK(choose_host_form(host, 1 << 20, Reach::memory) == HostForm::reading);
}
