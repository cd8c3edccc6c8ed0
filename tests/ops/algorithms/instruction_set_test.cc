// That reductions are done with the instruction set that a backend was given. Results do not show it; a set that the
// processor lacks does, because reduce() refuses it.
#include <latch>

#include "core/base/error.h"
#include "ops/algorithms/allreduce.h"
#include "ops/algorithms/transport_backend.h"
#include "ops/choice/algorithm_table.h"
#include "tests/support/catch.h"
#include "tests/support/link_costs.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

InstructionSet missing_set() {
  return available_instruction_sets().back() == InstructionSet::neon ? InstructionSet::avx2 : InstructionSet::neon;
}

template <typename Action>
std::string refusal_by(Action action) {
  try {
    action();
    return "nothing was refused";
  } catch (const Internal& error) {
    return error.what();
  }
}

const std::string kRefusal = std::string("this processor cannot run ") + instruction_set_name(missing_set());

}  // namespace

TEST_CASE("instruction sets: every algorithm folds with the one it is given") {
  const auto algorithm = GENERATE(AllreduceAlgorithm::one_shot, AllreduceAlgorithm::bruck, AllreduceAlgorithm::direct,
                                  AllreduceAlgorithm::halving_doubling, AllreduceAlgorithm::ring);
  INFO(algorithm_name(algorithm));
  const std::vector<int> members{0, 1};
  const std::vector<std::int64_t> bounds{0, 10, 20};
  std::latch both(2);
  std::string refusals[2];
  run_all_well({.size = 2}, [&](std::unique_ptr<Transport> transport) {
    std::vector<float> tensor(20);
    auto* const memory = reinterpret_cast<std::byte*>(tensor.data());
    const int rank = transport->rank();
    refusals[rank] = refusal_by([&] {
      run_allreduce(algorithm, {.transport = *transport,
                                .members = members,
                                .position = rank,
                                .reduction = {.instruction_set = missing_set()},
                                .values = memory,
                                .results = memory,
                                .slice_bounds = bounds,
                                .tag = {},
                                .deadline = deadline_after(20s)});
    });
    both.arrive_and_wait();  // whoever leaves takes its messages along
  });
  CHECK(refusals[0] == kRefusal);
  CHECK(refusals[1] == kRefusal);
}

TEST_CASE("instruction sets: a backend over a transport scales with the one it is given") {
  const ProcessSet set{.id = 0, .ranks = {0}};
  std::string refusal;
  run_all_well({.size = 1}, [&](std::unique_ptr<Transport> transport) {
    const auto backend =
        make_transport_backend("test", std::move(transport), 20s, AllreduceChoice({kTenGigabit}), missing_set());
    std::vector<float> tensor(20);
    CollectiveCall call{.prescale = 0.5, .set = &set, .pieces = {}, .counts = {}};
    call.pieces.push_back({.input = tensor.data(), .output = tensor.data(), .elements = 20});
    refusal = refusal_by([&] { backend->run(call); });
  });
  CHECK(refusal == kRefusal);
}
