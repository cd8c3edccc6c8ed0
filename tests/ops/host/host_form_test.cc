#include "ops/host/host_form.h"

#include <string>

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("the form of an allreduce inside a host follows from its size") {
  struct Case {
    int ranks;
    std::int64_t bytes;
    bool resident;
    HostForm form;
  };
  const auto c = GENERATE(values<Case>({
      {2, 1, false, HostForm::note},
      {8, 112, true, HostForm::note},
      {2, 113, false, HostForm::one_step},
      {2, 1 << 30, false, HostForm::one_step},
      {3, 16 << 10, false, HostForm::one_step},
      {3, (16 << 10) + 1, false, HostForm::sliced},
      {8, 16 << 10, false, HostForm::one_step},
      {9, 113, false, HostForm::sliced},
      {2, (128 << 10) - 1, true, HostForm::one_step},
      {4, (128 << 10) - 1, true, HostForm::sliced},
      {2, 128 << 10, true, HostForm::resident},
      {16, 1 << 30, true, HostForm::resident},
  }));
  CAPTURE(c.ranks, c.bytes, c.resident);
  CHECK(choose_host_form(c.ranks, c.bytes, c.resident) == c.form);
}

TEST_CASE("its lines say what the decision does") {
  CHECK(table_text(host_form_lines(2, false)).find("  0-113  note      ") == 0);
  const auto names = [](int ranks, bool arena) {
    std::string text;
    for (const TableLine& line : host_form_lines(ranks, arena)) {
      text += (text.empty() ? "" : " ") + range_text(line.from, line.to) + "=" + line.name;
      CHECK_FALSE(line.reason.empty());
    }
    return text;
  };
  CHECK(names(1, true) == "0-=alone");
  CHECK(names(2, false) == "0-113=note 113-=one_step");
  CHECK(names(4, false) == "0-113=note 113-16385=one_step 16385-=sliced");
  CHECK(names(9, false) == "0-113=note 113-=sliced");
  CHECK(names(4, true) == "0-113=note 113-16385=one_step 16385-=sliced 128k-=resident");
}
