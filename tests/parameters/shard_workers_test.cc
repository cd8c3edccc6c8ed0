// Which processes a shard's workers are, whose clock counts, and what was refused to them.
#include "parameters/shard_workers.h"

#include <map>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"

namespace hvd {

namespace {

using testing::failure;
using testing::has;

PsRequest request_of(std::uint32_t worker, std::uint64_t incarnation = 1, std::uint64_t sequence = 0) {
  return {.op = PsOp::push, .sequence = sequence, .incarnation = incarnation, .worker = worker};
}

ShardWorkers::Arrival greet(ShardWorkers& workers, std::uint32_t worker, std::uint32_t count,
                            std::uint64_t incarnation = 1, std::uint32_t applied_clock = 0) {
  return workers.greet(request_of(worker, incarnation), {.protocol = PsHello::kProtocol, .workers = count},
                       applied_clock);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("a worker is known by its number and its process") {
  ShardWorkers workers(3);
  CHECK(has(failure([&] { workers.of(request_of(0)); }), "worker 0 is unknown to shard 3"));
  CHECK_FALSE(greet(workers, 1, 2).is_known);
  CHECK(greet(workers, 1, 2).is_known);
  CHECK(has(failure([&] { workers.of(request_of(0)); }), "worker 0 is unknown"));
  CHECK_FALSE(greet(workers, 1, 2, 7).is_known);
  CHECK(has(failure([&] { workers.of(request_of(1, 1)); }), "another process has taken the place of worker 1"));
  CHECK(has(failure([&] { greet(workers, 1, 2, 6); }), "another process has taken the place of worker 1"));
  CHECK(has(failure([&] { greet(workers, 2, 2); }), "there is no worker 2: the job has 2 workers"));
  CHECK(has(failure([&] { greet(workers, 0, 2, 0); }), "worker 0 of 2"));
}

TEST_CASE("the slowest worker that has not left counts, and a newcomer begins there") {
  ShardWorkers workers(0);
  for (std::uint32_t worker = 0; worker < 3; ++worker) greet(workers, worker, 3).worker.clock = 5 + worker;
  CHECK(workers.min_clock(2) == 5);
  CHECK(workers.slowest() == 0);
  workers.of(request_of(0)).left = true;
  CHECK(workers.min_clock(2) == 6);
  CHECK(workers.slowest() == 1);
  CHECK(greet(workers, 0, 3, 2, 5).worker.clock == 6);
  for (std::uint32_t worker = 0; worker < 3; ++worker) CHECK(workers.forget(worker));
  CHECK_FALSE(workers.forget(3));
  CHECK(workers.min_clock(2) == 2);
  CHECK(workers.slowest() == -1);
  CHECK(workers.are_over());
  CHECK(greet(workers, 1, 3, 1, 9).worker.clock == 9);  // it was only busy
  CHECK(workers.present() == std::vector<std::uint32_t>{1});
}

TEST_CASE(
    "where workers come and go nobody waits for those that have not come, and an average is of those that are there") {
  ShardWorkers workers(0);
  greet(workers, 4, 0).worker.clock = 3;
  CHECK(workers.size() == 5);
  CHECK(workers.min_clock(0) == 3);
  CHECK(workers.contributors(std::map<std::uint32_t, int>{}) == 1);
  CHECK(workers.contributors(std::map<std::uint32_t, int>{{2, 0}, {4, 0}}) == 2);
  workers.of(request_of(4)).left = true;
  CHECK_FALSE(workers.are_over());
  CHECK(workers.contributors(std::map<std::uint32_t, int>{}) == 1);
  ShardWorkers constant(0);
  greet(constant, 0, 4);
  CHECK(constant.contributors(std::map<std::uint32_t, int>{{0, 0}}) == 4);
}

TEST_CASE("what was refused is refused again, to the same process") {
  ShardWorkers workers(0);
  greet(workers, 0, 1);
  workers.refuse(request_of(0, 1, 8), bytes_of("there is no such row"));
  workers.refuse(request_of(0, 2, 9), bytes_of("of another process"));
  workers.refuse(request_of(5, 1, 9), bytes_of("of nobody"));
  const ShardWorkers::Worker& worker = workers.of(request_of(0));
  CHECK(worker.applied == 8);
  CHECK(has(failure([&] { worker.throw_if_refused(request_of(0, 1, 8)); }), "there is no such row"));
  CHECK_NOTHROW(worker.throw_if_refused(request_of(0, 1, 7)));
  CHECK_NOTHROW(worker.throw_if_refused(request_of(0, 1, 9)));
}

TEST_CASE("a copy of the workers is the same, and malformed bytes are refused") {
  ShardWorkers workers(0), copy(0);
  greet(workers, 0, 3).worker.clock = 7;
  greet(workers, 2, 3).worker.left = true;
  workers.refuse(request_of(0, 1, 8), bytes_of("why"));
  ByteWriter to;
  workers.write(to);
  const Bytes bytes = to.take();
  ByteReader from(bytes);
  copy.read(from);
  from.expect_end();
  ByteWriter again;
  copy.write(again);
  CHECK(again.take() == bytes);
  CHECK(copy.present() == std::vector<std::uint32_t>{0});
  const std::span<const std::byte> whole(bytes);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ByteReader cut(whole.first(length));
    CHECK_THROWS_AS(copy.read(cut), Internal);
  }
  CHECK(copy.size() == 3);
}

}  // namespace hvd
