// What a rank records, and what others read of it: also when it is killed, writes meanwhile, or writes nonsense.
#include "core/flight/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "core/flight/flight_reader.h"
#include "core/operation/operation.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

std::span<const std::byte> bytes_of(const SharedMemory& memory) { return {memory.data(), memory.size()}; }
std::vector<RecordedOperation> read(const FlightRecorder& recorder) {
  return read_flight_operations(bytes_of(recorder.memory()));
}

FlightWords operation(const std::string& name, std::int64_t elements = 3) {
  OperationSpec spec{.process_set = 7, .name = name, .collective = Collective::broadcast, .tensors = {}, .splits = {}};
  spec.tensors = {{.dtype = DType::float64, .shape = {2, elements}}};
  return describe(spec);
}

FlightMemory& inside(const SharedMemory& memory) { return *reinterpret_cast<FlightMemory*>(memory.data()); }

JobEnding ending_of(const FlightRecorder& recorder) { return read_job_ending(bytes_of(recorder.memory())); }

TEST_CASE("why the job has ended is told once, and by whom") {
  using Kind = JobEnding::Kind;
  const Status by_another(StatusCode::peer_lost, "rank 3 is lost", 3);
  FlightRecorder recorder(-1, 5);
  const auto job_has_failed = [&] { return read_flight_snapshot(bytes_of(recorder.memory())).value().job_has_failed; };
  CHECK(ending_of(recorder) == JobEnding{.in_job = true});
  CHECK_FALSE(job_has_failed());

  SECTION("a rank that leaves has nothing to tell") {
    recorder.left();
    CHECK(ending_of(recorder) == JobEnding{});
    CHECK_FALSE(job_has_failed());
  }
  SECTION("a consequence stays one") {
    recorder.job_ended(by_another, 5);
    recorder.job_ended(Status(StatusCode::peer_lost, "rank 4 is lost", 4), 5);
    recorder.failed("raised HorovodInternalError");
    CHECK(ending_of(recorder) == JobEnding{.kind = Kind::consequence, .culprit = 3});
    CHECK(recorder.ended_by_another().has_value());
    CHECK(job_has_failed());
  }
  SECTION("a failure stays one, in its own words") {
    recorder.job_ended(Status(StatusCode::timeout, "waited", 5), 5);
    CHECK(ending_of(recorder) == JobEnding{.kind = Kind::local_failure, .cause = "gave up the job: waited"});
    recorder.failed("raised ValueError: \x1b[31mbad");
    recorder.failed("called sys.exit(1)");
    recorder.job_ended(Status(StatusCode::aborted, "rank 5 raised ValueError", 5), 5);
    recorder.job_ended(by_another, 5);
    CHECK(ending_of(recorder) == JobEnding{.kind = Kind::local_failure, .cause = "raised ValueError: ?[31mbad"});
    CHECK_FALSE(recorder.ended_by_another().has_value());
  }
  SECTION("whatever it says") {
    inside(recorder.memory()).end.culprit = -77;
    inside(recorder.memory()).end.state = static_cast<std::int32_t>(FlightEndState::consequence);
    CHECK(ending_of(recorder) == JobEnding{.kind = Kind::consequence, .culprit = kNobody});
    inside(recorder.memory()).end.state = 4711;
    CHECK(ending_of(recorder) == JobEnding{.in_job = true});
  }
}

TEST_CASE("an operation is recorded from its submission to its end") {
  FlightRecorder recorder(-1, 5);
  CHECK(recorder.problem().empty());
  FlightEntry entry = recorder.submitted(operation("weight"), 118);
  auto recorded = read(recorder);
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].name == "weight");
  CHECK(recorded[0].collective == Collective::broadcast);
  CHECK(recorded[0].process_set == 7);
  CHECK(recorded[0].sequence == 118);
  CHECK(recorded[0].dtype == DType::float64);
  CHECK(recorded[0].shape == std::vector<std::int64_t>{2, 3});
  CHECK(recorded[0].bytes == 48);
  CHECK(recorded[0].state == FlightState::submitted);
  CHECK(Clock::now() - recorded[0].submitted < 10s);
  entry.performing(flight_time());
  CHECK(read(recorder)[0].state == FlightState::performing);
  entry.waits_again();
  CHECK(read(recorder)[0].under_way());
  entry.performing(flight_time());
  entry.ended(StatusCode::peer_lost);
  recorded = read(recorder);
  CHECK(recorded[0].state == FlightState::failed);
  CHECK(recorded[0].code == StatusCode::peer_lost);
  CHECK(recorded[0].ended >= recorded[0].started);
  recorder.performing(operation("b"), 119).done();
  CHECK(read(recorder)[1].state == FlightState::done);
  recorder.performing(operation("c"), 120).forget();
  CHECK(read(recorder).size() == 2);
  FlightEntry().ended(StatusCode::ok);  // of nothing
}

TEST_CASE("the last 4096 operations are kept, and who has lost its place does not touch another's") {
  FlightRecorder recorder(-1, 0);
  FlightEntry first = recorder.submitted(operation("first"), 1);
  for (std::uint64_t i = 2; i <= kFlightRecords + 1; ++i) recorder.submitted(operation(std::to_string(i)), i);
  first.ended(StatusCode::internal);
  const auto recorded = read(recorder);
  REQUIRE(recorded.size() == kFlightRecords);
  CHECK(recorded.front().name == "2");
  CHECK(recorded.back().name == std::to_string(kFlightRecords + 1));
  CHECK(std::all_of(recorded.begin(), recorded.end(), [](const auto& one) { return one.under_way(); }));
}

TEST_CASE("names are shortened in the middle, and nothing in them is a command to a terminal") {
  char text[12];
  put_short_name("layer.weight", text, sizeof text);
  CHECK(std::string(text) == "laye..eight");
  put_short_name("layer.bias1", text, sizeof text);
  CHECK(std::string(text) == "layer.bias1");
  put_short_name("w\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", text, sizeof text);
  CHECK(std::string(text) == "w\xc3\xbc..\xc3\xbc\xc3\xbc");   // whole characters of UTF-8
  put_short_name(std::string(20, '\x80'), text, sizeof text);  // this is not UTF-8
  CHECK(std::string(text) == "..");
  FlightRecorder recorder(-1, 0);
  recorder.submitted(operation("\x1b[2Jw\xc3\xa4\xc2\x9b\x7f"), 1);
  CHECK(read(recorder)[0].name == "?[2Jw\xc3\xa4???");
}

TEST_CASE("sizes beyond what a record holds are cut, not wrapped") {
  OperationSpec spec{.name = "large", .tensors = {}, .splits = {}};
  spec.tensors.assign(300, {.dtype = DType::uint8, .shape = {std::int64_t{1} << 40, 2, 3, 4, 5, 6}});
  FlightRecorder recorder(-1, 0);
  recorder.submitted(describe(spec), 1);
  const auto recorded = read(recorder);
  CHECK(recorded[0].tensors == 255);
  CHECK(recorded[0].shape == std::vector<std::int64_t>{0xffffffff, 2, 3, 4});
}

TEST_CASE("a stall is told until it is over") {
  FlightRecorder recorder(-1, 0);
  const auto facts = [&] { return read_flight_snapshot(bytes_of(recorder.memory())).value(); };
  CHECK(facts().stall.empty());
  recorder.stalled("waiting for rank 2");
  CHECK(facts().stall == "waiting for rank 2");
  recorder.stalled("waiting for rank 3");
  CHECK(facts().stall == "waiting for rank 3");
  recorder.recovered();
  CHECK(facts().stall.empty());
}

TEST_CASE("inherited memory shows its maker what happens, and begins anew with each job") {
  const SharedMemory made = make_flight_memory();
  CHECK(read_flight_snapshot(bytes_of(made)).value().pid == 0);
  fcntl(made.fd(), F_SETFD, 0);
  {
    const FlightRecorder recorder(made.fd(), 3);
    REQUIRE(recorder.problem().empty());
    recorder.metrics()->operations.add(5);
  }
  CHECK((fcntl(made.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(read_flight_snapshot(bytes_of(made)).value().pid == getpid());
  CHECK(read_flight_snapshot(bytes_of(made)).value().rank == 3);
  CHECK(read_flight_snapshot(bytes_of(made)).value().counters.operations == 5);
  FlightRecorder again(made.fd(), 3);
  REQUIRE(again.problem().empty());
  CHECK(read_flight_snapshot(bytes_of(made)).value().counters.operations == 0);
  again.submitted(operation("a"), 1);
  CHECK(read_flight_operations(bytes_of(made)).size() == 1);
  const FlightRecorder third(made.fd(), 3);
  CHECK(read_flight_operations(bytes_of(made)).empty());
}

TEST_CASE("a descriptor that is something else is not used, nor changed") {
  const SharedMemory smaller = SharedMemory::create(4096, "smaller");
  const SharedMemory empty = SharedMemory::create(sizeof(FlightMemory), "empty");
  const SharedMemory other = make_flight_memory();
  inside(other).layout += 1;
  const FileDescriptor unsealed(memfd_create("unsealed", MFD_ALLOW_SEALING));
  const FileDescriptor file(open("/dev/null", O_RDWR));
  for (const int fd : {smaller.fd(), empty.fd(), other.fd(), unsealed.get(), file.get(), 99'999}) {
    fcntl(fd, F_SETFD, 0);
    FlightRecorder recorder(fd, 0);
    CHECK(recorder.problem().starts_with("HVD_FLIGHT_RECORDER=" + std::to_string(fd) + " cannot be used: "));
    CHECK((fd == 99'999 || (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0));
    recorder.submitted(operation("a"), 1);
    CHECK(read(recorder).size() == 1);
  }
}

TEST_CASE("a rank that is killed leaves what it was doing") {
  const SharedMemory made = make_flight_memory();
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    FlightRecorder recorder(made.fd(), 1);
    recorder.submitted(operation("before"), 1).ended(StatusCode::ok);
    recorder.performing(operation("under way"), 2);
    recorder.submitted(operation("torn"), 3);
    // As if it was killed in the middle of writing this one.
    inside(recorder.memory()).records[3].word.store(flight_word(3, FlightState::writing));
    static_cast<void>(write(ready[1], "!", 1));
    for (;;) pause();
  }
  char byte;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  const auto recorded = read_flight_operations(bytes_of(made));
  REQUIRE(recorded.size() == 2);
  CHECK(recorded[0].state == FlightState::done);
  CHECK(recorded[1].name == "under way");
  CHECK(recorded[1].state == FlightState::performing);
  CHECK(read_flight_snapshot(bytes_of(made)).value().pid == child);
}

TEST_CASE("whatever is in the memory, reading it ends well") {
  const SharedMemory made = make_flight_memory();
  CHECK_FALSE(read_flight_snapshot(bytes_of(made).first(1000)));
  CHECK(read_flight_operations(bytes_of(made).first(1000)).empty());
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    auto* const words = reinterpret_cast<std::uint64_t*>(made.data());
    for (std::size_t i = 0; i < sizeof(FlightMemory) / 8; ++i) words[i] = random();
    CHECK_FALSE(read_flight_snapshot(bytes_of(made)));
    FlightMemory& memory = inside(made);
    memory.magic = kFlightMagic;
    memory.layout = kFlightLayout;
    // Half of them as if they were right.
    for (std::size_t i = 0; i < kFlightRecords; i += 2) {
      memory.records[i].word.store(flight_word(i + kFlightRecords, static_cast<FlightState>(random() % 8)));
    }
    memory.stall.changes.store(random() & ~std::uint64_t{1});
    CHECK(read_flight_snapshot(bytes_of(made)));
    for (const RecordedOperation& one : read_flight_operations(bytes_of(made))) {
      CHECK(one.name.size() <= 56);
      CHECK(one.shape.size() <= 4);
      CHECK(one.submitted.time_since_epoch() >= 0s);
    }
  }
}

TEST_CASE("what is read while others write is one operation's or left out") {
  FlightRecorder recorder(-1, 0);
  std::atomic<bool> stop{false};
  std::array<std::atomic<std::uint64_t>, 3> written{};  // by each writer
  const auto write_many = [&](std::int64_t writer) {
    const auto own = static_cast<std::size_t>(writer);
    for (std::uint64_t i = 1; !stop; ++i) {
      // None that is without a CPU finds its record reused, which the recorder does not prevent.
      while (i > written[3 - own] + kFlightRecords / 4 && !stop) std::this_thread::yield();
      // The name and the shape say the same.
      const auto elements = static_cast<std::int64_t>(i % 1000);
      FlightEntry entry = recorder.submitted(
          operation(std::to_string(writer) + "/" + std::to_string(elements), elements * 10 + writer), i);
      entry.performing(flight_time());
      entry.ended(StatusCode::ok);
      written[own] = i;
    }
  };
  std::thread one(write_many, 1), two(write_many, 2);
  std::size_t seen = 0;
  std::string wrong;
  while (seen < 20'000) {
    for (const RecordedOperation& operation : read(recorder)) {
      ++seen;
      const std::int64_t elements = operation.shape.at(1);
      const std::string name = std::to_string(elements % 10) + "/" + std::to_string(elements / 10);
      if (operation.name != name) wrong += operation.name + " is not " + name + "\n";
    }
  }
  stop = true;
  one.join();
  two.join();
  CHECK(wrong.empty());
}

}  // namespace
}  // namespace hvd
