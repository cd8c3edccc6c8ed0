#include "ops/choice/trials.h"

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
