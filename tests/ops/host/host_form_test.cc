#include "ops/host/host_form.h"

#include <string>

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("the form of an allreduce inside a host follows from its size") {
  struct Case {
    int ranks;
    std::int64_t bytes;
    Reach reach;
    HostForm form;
  };
  const auto c = GENERATE(values<Case>({
      {2, 1, Reach::chunks, HostForm::note},
      {8, 112, Reach::arena, HostForm::note},
      {2, 113, Reach::chunks, HostForm::one_step},
      {2, 1 << 30, Reach::chunks, HostForm::one_step},
      {3, 16 << 10, Reach::chunks, HostForm::one_step},
      {3, (16 << 10) + 1, Reach::chunks, HostForm::sliced},
      {8, 16 << 10, Reach::chunks, HostForm::one_step},
      {9, 113, Reach::chunks, HostForm::sliced},
      {2, (128 << 10) - 1, Reach::arena, HostForm::one_step},
      {4, (128 << 10) - 1, Reach::memory, HostForm::sliced},
      {2, 128 << 10, Reach::arena, HostForm::resident},
      {16, 1 << 30, Reach::arena, HostForm::resident},
      {2, 128 << 10, Reach::memory, HostForm::reading},
      {16, 1 << 30, Reach::memory, HostForm::reading},
  }));
  CAPTURE(c.ranks, c.bytes);
  CHECK(choose_host_form(c.ranks, c.bytes, c.reach) == c.form);
}

TEST_CASE("its lines say what the decision does") {
  const auto names = [](const HostFacts& host) {
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
  CHECK(names({.ranks = 9}) == "0-113=note 113-=sliced");
  CHECK(names({.ranks = 4, .arena = true, .reading = true}) ==
        "0-113=note 113-16385=one_step 16385-=sliced 128k-=resident 128k-=reading");
  const auto reason = [](bool groups) { return host_form_lines({.ranks = 9, .groups = groups}).back().reason; };
  CHECK(reason(true) != reason(false));
}
