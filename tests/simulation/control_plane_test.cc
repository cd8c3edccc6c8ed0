// Small simulated jobs. What the control plane does at 100,000 ranks it does at 1,000 as well, but for one level of the
// tree.
#include "simulation/control_plane.h"

#include "core/base/error.h"
#include "simulation/experiment.h"
#include "simulation/report.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::simulation;

namespace {

Job job_of(int ranks, int tensors) { return {.ranks = ranks, .operations = gradients(tensors), .network = {}}; }

Costs some_costs() {
  Costs costs;
  costs.fill({.message = 500, .request = 100, .hit = 20, .byte = 0.05});
  return costs;
}

}  // namespace

TEST_CASE("No node sends more than radix + 2 messages in a round, whatever the job's size") {
  for (const int ranks : {1, 2, 8, 9, 100, 1000, 2500}) {
    for (const Costs& costs : {Costs{}, some_costs()}) {
      CAPTURE(ranks);
      ModelProcessor processor(costs);
      ControlPlane plane(job_of(ranks, 20), processor);
      CHECK(plane.max_neighbours() <= kControlRadix + 1);
      for (const bool cached : {false, true}) {
        const Round round = plane.negotiate();
        CHECK(round.requests == (cached ? 0 : 20));
        CHECK(round.hits == (cached ? 20 : 0));
        CHECK(round.max.messages <= kControlRadix + 2);
        CHECK(round.root.messages <= kControlRadix);
        CHECK(round.max.local_messages <= 7);
        // One up and one down each edge.
        CHECK(round.messages == 2 * (plane.hosts() - 1));
        CHECK(round.buckets > 0);
      }
    }
  }
}

TEST_CASE("After a step that was like the one before, the next sends nothing") {
  ModelProcessor processor(some_costs());
  ControlPlane plane(job_of(300, 10), processor);
  CHECK_FALSE(plane.negotiate().locks);
  CHECK_THROWS_AS(plane.follow_schedule(), Internal);
  CHECK(plane.negotiate().locks);
  const Round locked = plane.follow_schedule();
  CHECK(locked.messages == 0);
  CHECK(locked.max.messages == 0);
  CHECK(locked.max.local_messages == 0);
  CHECK(locked.requests == 0);
  CHECK(locked.hits == 0);
  CHECK(locked.request_bytes + locked.response_bytes == 0);
  CHECK(locked.time == 700ns);  // ten operations, on every rank at the same time
}

TEST_CASE("The same seed gives the same report") {
  Job job = job_of(500, 10);
  job.network.jitter = 20us;
  job.network.drop = 0.02;
  const auto report = [&](std::uint64_t seed) {
    job.seed = seed;
    return table(simulate(job, 77));
  };
  CHECK(report(1) == report(1));
  CHECK(report(1) != report(2));
}

TEST_CASE("Jitter and lost messages only take time") {
  ModelProcessor processor(some_costs());
  ControlPlane calm(job_of(500, 10), processor);
  Job troubled_job = job_of(500, 10);
  troubled_job.network.jitter = 20us;
  troubled_job.network.drop = 0.05;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    troubled_job.seed = seed;
    ControlPlane troubled(troubled_job, processor);
    const Round round = troubled.negotiate();
    CHECK(round.requests == 10);
    CHECK(round.time > 12us);
    CHECK(round.time < 10 * troubled_job.network.retransmission);
    CHECK(round.buckets > 0);
    CHECK(troubled.negotiate().hits == 10);
  }
  CHECK(calm.negotiate().time < 1ms);
}

TEST_CASE("However messages are cut by drops, the job comes to the same end") {
  // What waits for longer than the aggregation delay goes up in parts.
  Job job = job_of(2000, 5);
  job.network.drop = 0.1;
  job.seed = 3;
  ModelProcessor processor{Costs{}};
  ControlPlane plane(job, processor);
  const Round round = plane.negotiate();
  CHECK(round.time > 200ms);
  CHECK(round.messages >= 2 * (plane.hosts() - 1));
  CHECK(plane.negotiate().hits == 5);
}

TEST_CASE("Ranks that share what they know behave as those that do not") {
  ModelProcessor processor(some_costs());
  Job job = job_of(300, 12);
  ControlPlane alike(job, processor);
  job.alike = false;
  ControlPlane apart(job, processor);
  for (int round = 0; round < 2; ++round) {
    const Round a = alike.negotiate();
    const Round b = apart.negotiate();
    CHECK(a.time == b.time);
    CHECK(a.messages == b.messages);
    CHECK(a.max.bytes == b.max.bytes);
    CHECK(a.buckets == b.buckets);
    CHECK(a.locks == b.locks);
  }
  CHECK(alike.follow_schedule().time == apart.follow_schedule().time);
}

TEST_CASE("Ranks that send the same in different orders agree too, and take longer") {
  ModelProcessor processor(some_costs());
  Job job = job_of(300, 12);
  job.alike = false;
  ControlPlane in_order(job, processor);
  job.rotated = true;
  ControlPlane rotated(job, processor);
  const Round round = rotated.negotiate();
  CHECK(round.time > in_order.negotiate().time);
  CHECK(round.max.messages <= kControlRadix + 2);
  CHECK(rotated.negotiate().hits == 12);
}

TEST_CASE("All survivors hear of a lost rank, wherever it is in the tree") {
  const int ranks = 2500;
  for (const int lost : {0, 1, 8, 160, 2499, 2496}) {
    CAPTURE(lost);
    ModelProcessor processor(some_costs());
    ControlPlane plane(job_of(ranks, 5), processor);
    plane.negotiate();
    const Loss loss = plane.lose(lost, 50us);
    CHECK(loss.rank == lost);
    CHECK(loss.informed == ranks - 1);
    CHECK(loss.first > 0us);
    CHECK(loss.first <= loss.last);
    CHECK(loss.last < 1ms);
  }
}

TEST_CASE("The time of a round grows with the depth of the tree, not with the number of ranks") {
  ModelProcessor processor{Costs{}};
  const auto time = [&](int ranks) { return ControlPlane(job_of(ranks, 10), processor).negotiate().time; };
  const Duration star = time(8 * 17);
  const Duration two_levels = time(8 * 273);
  CHECK(two_levels < 2.5 * star);
  CHECK(time(8 * 150) <= two_levels);
}
