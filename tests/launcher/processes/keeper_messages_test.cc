#include "launcher/processes/keeper_messages.h"

#include <csignal>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "launcher/loop/packet_socket.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Request = KeeperRequest::Kind;
using Report = KeeperReport::Kind;

TEST_CASE("requests arrive as they were") {
  for (const KeeperRequest& request :
       {KeeperRequest{.kind = Request::start_part, .part = std::string("a\0b", 3)},
        KeeperRequest{.kind = Request::start}, KeeperRequest{.kind = Request::signal_ranks, .value = SIGUSR1},
        KeeperRequest{.kind = Request::signal_all, .value = SIGKILL}, KeeperRequest{.kind = Request::list_left},
        KeeperRequest{.kind = Request::set_lease, .value = 5000}, KeeperRequest{.kind = Request::renew_lease}}) {
    CHECK(decode_keeper_request(encode(request)) == request);
  }
}

TEST_CASE("reports arrive as they were") {
  const ExitStatus killed{.by_signal = true, .value = SIGSEGV, .core_dumped = true};
  for (const KeeperReport& report :
       {KeeperReport{.kind = Report::started, .pid = 4711},
        KeeperReport{.kind = Report::not_started, .text = "cannot start a process"},
        KeeperReport{.kind = Report::ended, .pid = 4711, .status = killed},
        KeeperReport{.kind = Report::ended, .pid = 4711, .status = {.value = 3}},
        KeeperReport{.kind = Report::nothing_left}, KeeperReport{.kind = Report::left, .pids = {1, 2, 3}}}) {
    CHECK(decode_keeper_report(encode(report)) == report);
  }
}

TEST_CASE("a report fits into a packet, and so does a part of a start") {
  const std::string part(kMaxStartPart, 'x');
  CHECK(encode(KeeperRequest{.kind = Request::start_part, .part = part}).size() <= kMaxPacketBytes);
  const std::vector<pid_t> many(5000, 4711);
  const std::string list = encode(KeeperReport{.kind = Report::left, .pids = many});
  CHECK(list.size() <= kMaxPacketBytes);
  CHECK(decode_keeper_report(list).pids.size() == kMaxReportedPids);
  const std::string text = encode(KeeperReport{.kind = Report::not_started, .text = std::string(100'000, 'x')});
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
  const ChildStart start = some_start(), copy = decode_start(encode_start(start));
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
  for (const std::string& bytes : {std::string(), std::string("\x07\0\0\0\0\0\0\0\0", 9),
                                   std::string("\xff\0\0\0\0\0\0\0\0", 9), std::string("\0\0\0\0\0\0\0\0", 8),
                                   std::string("\0\0\0\0\0\0\0\0\0\0", 10), std::string("\0\0\0\0\0\2\0\0\0x", 10)}) {
    CHECK_THROWS_AS(decode_keeper_request(bytes), Internal);
  }
  const std::string report = encode(KeeperReport{.kind = Report::left, .text = "text", .pids = {1, 2}});
  for (std::size_t size = 0; size < report.size(); ++size) {
    CHECK_THROWS_AS(decode_keeper_report(report.substr(0, size)), Internal);
  }
  CHECK_THROWS_AS(decode_keeper_report(report + "x"), Internal);
  CHECK_THROWS_AS(decode_keeper_report("\x05" + report.substr(1)), Internal);
  ChildStart start = some_start();
  start.environment.pop_back();
  const std::string bytes = encode_start(start);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_THROWS_AS(decode_start(bytes.substr(0, size)), Internal);
  CHECK_THROWS_AS(decode_start(bytes + "x"), Internal);
}

}  // namespace
}  // namespace hvd::launcher
