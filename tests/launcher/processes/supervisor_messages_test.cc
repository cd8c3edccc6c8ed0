#include "launcher/processes/supervisor_messages.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "launcher/processes/child_process.h"
#include "tests/launcher/start_time.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Request = SupervisorRequest::Kind;
using Report = SupervisorReport::Kind;

TEST_CASE("requests arrive as they were") {
  for (const SupervisorRequest& request :
       {SupervisorRequest{.kind = Request::start_part, .part = std::string("a\0b", 3)},
        SupervisorRequest{.kind = Request::start}, SupervisorRequest{.kind = Request::signal_ranks, .value = SIGUSR1},
        SupervisorRequest{.kind = Request::signal_all, .value = SIGKILL}, SupervisorRequest{.kind = Request::list_left},
        SupervisorRequest{.kind = Request::set_lease, .value = 5000}, SupervisorRequest{.kind = Request::end_groups},
        SupervisorRequest{.kind = Request::kill_rank, .value = 4711},
        SupervisorRequest{.kind = Request::renew_lease}}) {
    CHECK(decode_supervisor_request(encode(request)) == request);
  }
}

TEST_CASE("reports arrive as they were") {
  const ExitStatus killed{.by_signal = true, .value = SIGSEGV, .core_dumped = true};
  for (const SupervisorReport& report :
       {SupervisorReport{.kind = Report::started, .pid = 4711},
        SupervisorReport{.kind = Report::not_started, .text = "cannot start a process"},
        SupervisorReport{.kind = Report::ended, .pid = 4711, .status = killed},
        SupervisorReport{.kind = Report::ended, .pid = 4711, .status = {.value = 3}},
        SupervisorReport{.kind = Report::nothing_left}, SupervisorReport{.kind = Report::left, .pids = {1, 2, 3}}}) {
    CHECK(decode_supervisor_report(encode(report)) == report);
  }
}

TEST_CASE("a report fits into a packet, and so does a part of a start") {
  const std::string part(kMaxStartPart, 'x');
  CHECK(encode(SupervisorRequest{.kind = Request::start_part, .part = part}).size() <= kMaxPacketBytes);
  const std::vector<pid_t> many(5000, 4711);
  const std::string list = encode(SupervisorReport{.kind = Report::left, .pids = many});
  CHECK(list.size() <= kMaxPacketBytes);
  CHECK(decode_supervisor_report(list).pids.size() == kMaxReportedPids);
  const std::string text = encode(SupervisorReport{.kind = Report::not_started, .text = std::string(100'000, 'x')});
  CHECK(text.size() <= kMaxPacketBytes);
}

ChildStart some_start() {
  ChildStart start;
  start.program = "/bin/sh";
  start.arguments = {"sh", "-c", "", "a b\n"};
  start.environment = {"A=1", "LONG=" + std::string(300'000, 'x')};
  start.working_directory = "/tmp";
  start.cpus = {0, 2, 100};
  start.inherited = {{.fd = 11, .number = 11}, {.fd = 13, .number = 12}};
  return start;
}

TEST_CASE("a start arrives as it was, without descriptors") {
  const ChildStart start = some_start(), copy = decode_value<ChildStart>(encode_value(start));
  CHECK(copy.program == start.program);
  CHECK(copy.arguments == start.arguments);
  CHECK(copy.environment == start.environment);
  CHECK(copy.working_directory == start.working_directory);
  CHECK(copy.cpus == start.cpus);
  REQUIRE(copy.inherited.size() == 2);
  CHECK(copy.inherited[0].number == 11);
  CHECK(copy.inherited[1].number == 12);
  CHECK(copy.inherited[1].fd == -1);
  CHECK(copy.standard_input == -1);
}

TEST_CASE("malformed messages are refused") {
  for (const std::string& bytes : {std::string(), std::string("\x09\0\0\0\0\0\0\0\0", 9),
                                   std::string("\xff\0\0\0\0\0\0\0\0", 9), std::string("\0\0\0\0\0\0\0\0", 8),
                                   std::string("\0\0\0\0\0\0\0\0\0\0", 10), std::string("\0\0\0\0\0\2\0\0\0x", 10)}) {
    CHECK_THROWS_AS(decode_supervisor_request(bytes), Internal);
  }
  const std::string report = encode(SupervisorReport{.kind = Report::left, .text = "text", .pids = {1, 2}});
  for (std::size_t size = 0; size < report.size(); ++size) {
    CHECK_THROWS_AS(decode_supervisor_report(report.substr(0, size)), Internal);
  }
  CHECK_THROWS_AS(decode_supervisor_report(report + "x"), Internal);
  CHECK_THROWS_AS(decode_supervisor_report("\x05" + report.substr(1)), Internal);
  ChildStart start = some_start();
  start.environment.pop_back();
  const std::string bytes = encode_value(start);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(decode_value<ChildStart>(bytes.substr(0, size)), Internal);
  CHECK_THROWS_AS(decode_value<ChildStart>(bytes + "x"), Internal);
}

TEST_CASE("packets keep their borders, and the end is seen") {
  auto [here, there] = make_packet_sockets();
  CHECK_FALSE(receive_packet(there.get()));
  CHECK(send_packet(here.get(), "one"));
  CHECK(send_packet(here.get(), std::string("t\0wo", 4)));
  here.reset();
  CHECK(receive_packet(there.get())->bytes == "one");
  CHECK(receive_packet(there.get())->bytes == std::string("t\0wo", 4));
  CHECK(receive_packet(there.get())->bytes.empty());
  CHECK_FALSE(send_packet(there.get(), "lost"));
  CHECK(errno == EPIPE);
}

TEST_CASE("descriptors travel with a packet, and close on exec") {
  auto [here, there] = make_packet_sockets();
  auto [reader, writer] = make_pipe();
  CHECK(send_packet(here.get(), "x", std::array<int, 2>{reader.get(), writer.get()}));
  writer.reset();
  const std::optional<Packet> packet = receive_packet(there.get());
  REQUIRE(packet->descriptors.size() == 2);
  CHECK_FALSE(packet->truncated);
  for (const FileDescriptor& entry : packet->descriptors) CHECK(fcntl(entry.get(), F_GETFD) == FD_CLOEXEC);
  CHECK(write(packet->descriptors[1].get(), "!", 1) == 1);
  char byte = 0;
  CHECK(read(reader.get(), &byte, 1) == 1);
  CHECK(byte == '!');
}

TEST_CASE("a packet that is too long, or brings more descriptors than may be opened, is told apart") {
  auto [here, there] = make_packet_sockets();
  CHECK(send_packet(here.get(), std::string(kMaxPacketBytes + 1, 'x')));
  CHECK(receive_packet(there.get())->truncated);
  CHECK_FALSE(send_packet(here.get(), "x", std::vector<int>(kMaxPacketDescriptors + 1, here.get())));
  CHECK(send_packet(here.get(), "x", std::vector<int>(kMaxPacketDescriptors, here.get())));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const FileDescriptor next(dup(here.get()));
  const rlimit low{.rlim_cur = static_cast<rlim_t>(next.get()) + 3, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  const std::optional<Packet> packet = receive_packet(there.get());
  setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(packet->truncated);
  CHECK(packet->descriptors.size() < kMaxPacketDescriptors);
}

TEST_CASE("a reader that is slow blocks nobody") {
  auto [here, there] = make_packet_sockets();
  while (send_packet(here.get(), "x")) {
  }
  CHECK(errno == EAGAIN);
}

TEST_CASE("without a lease no silence is too long") {
  SupervisorLease lease;
  CHECK_FALSE(lease.deadline());
  lease.renew(kStart);
  CHECK_FALSE(lease.has_expired(kStart + 1h));
  lease.set(100ms, kStart);
  CHECK(lease.deadline());
  lease.set(Duration::zero(), kStart);
  CHECK_FALSE(lease.deadline());
}

TEST_CASE("a lease begins anew whenever it is renewed") {
  SupervisorLease lease;
  lease.set(100ms, kStart);
  CHECK(lease.deadline() == kStart + 100ms);
  CHECK_FALSE(lease.has_expired(kStart + 99ms));
  lease.renew(kStart + 80ms);
  CHECK_FALSE(lease.has_expired(kStart + 179ms));
  CHECK(lease.deadline() == kStart + 180ms);
  CHECK(lease.has_expired(kStart + 180ms));
}

TEST_CASE("a supervisor that was held up itself does not judge") {
  SupervisorLease lease;
  lease.set(100ms, kStart);
  CHECK_FALSE(lease.has_expired(kStart + 10s));
  CHECK(lease.deadline() == kStart + 10s + 100ms);
  CHECK(lease.has_expired(kStart + 10s + 110ms));
}

}  // namespace
}  // namespace hvd::launcher
