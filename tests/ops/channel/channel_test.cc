// Messages between ranks that are threads of this process, over every kind of connection.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "ops/channel/channel_peer.h"
#include "ops/channel/socket_channel.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

constexpr Duration kTimeout = std::chrono::minutes(2);

using Numbers = std::vector<std::int32_t>;

// The most numbers that are sent at once.
constexpr std::size_t kEager = (std::size_t{64} << 10) / sizeof(std::int32_t);

Numbers numbers(std::size_t count, std::int32_t first) {
  Numbers values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

Message message(Numbers& values, int peer, std::int64_t tag = 0, std::uint64_t channel = 0) {
  return {.peer = peer, .channel = channel, .tag = tag, .memory = std::as_writable_bytes(std::span(values))};
}

Status end_of(CallerReference handle) {
  if (!handle->wait(deadline_after(kTimeout))) return Status(StatusCode::timeout, "the test's timeout is over");
  return handle->completion.status();
}

void await(CallerReference handle) {
  const Status end = end_of(std::move(handle));
  require(end.ok(), end.message());
}

// All ways that a message may take: memory of the same host read, a Unix socket, TCP.
Layout two_ranks() {
  return GENERATE(Layout{.ranks_by_host = {2}}, Layout{.ranks_by_host = {2}, .shared_memory = false},
                  Layout{.ranks_by_host = {1, 1}});
}

// In its scope this process can open only that many more descriptors.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(int more) {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    std::vector<FileDescriptor> next;
    for (int i = 0; i < more; ++i) next.emplace_back(dup(STDERR_FILENO));
    const rlimit limit{.rlim_cur = static_cast<rlim_t>(next.back().get()) + 1, .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

// Rank 0's end of the messages with rank 1, which the test plays.
class PeerOfTest {
 public:
  PeerOfTest() {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    peer.accept(Socket(FileDescriptor(ends[0])));
    peer.make_progress();
    other = Socket(FileDescriptor(ends[1]));
  }

  CallerReference receive() {
    OperationReferences operation = make_message_operation(std::make_shared<Metrics>());
    matcher.keep(Transfer{.message = message(value, 1), .operation = std::move(operation.engine)});
    return std::move(operation.caller);
  }

  Store store;
  const Topology topology = make_topology(
      0, {{.host_key = "host", .hostname = "host", .pid = 1}, {.host_key = "host", .hostname = "host", .pid = 2}});
  const JobKey key = JobKey::random();
  const Config config;
  const Log log{"test", LogLevel::off};
  const ChannelParts parts{
      .topology = topology, .store = store, .job_key = key, .config = config, .log = log, .local_host = "127.0.0.1"};
  const FileDescriptor epoll{epoll_create1(EPOLL_CLOEXEC)};
  const PeerMemory memory;
  Matcher matcher;
  ChannelPeer peer{1, parts, epoll.get(), matcher, memory};
  Socket other;
  Numbers value{0};
};

}  // namespace

TEST_CASE("messages of any size go both ways at once, and keep their order") {
  const Layout layout = two_ranks();
  INFO(layout.name());
  run_ranks({.layout = layout, .environment = {}}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    const int other = 1 - rank;
    const std::vector<std::size_t> sizes{0, 1, 1000, kEager, kEager + 1, 0, std::size_t{4} << 20, 7};
    std::vector<Numbers> sent, received;
    std::vector<CallerReference> handles;
    for (const std::size_t size : sizes) {
      sent.push_back(numbers(size, rank));
      received.emplace_back(size);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) handles.push_back(runtime.send(message(sent[i], other)));
    for (std::size_t i = 0; i < sizes.size(); ++i) handles.push_back(runtime.receive(message(received[i], other)));
    for (CallerReference& handle : handles) await(std::move(handle));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      require(received[i] == numbers(sizes[i], other), "message " + std::to_string(i) + " came otherwise");
    }
  });
}

TEST_CASE("tags and channels keep messages apart, whatever was sent first") {
  run_ranks({.layout = {.ranks_by_host = {2}}, .environment = {}}, [](Runtime& runtime) {
    Numbers a = numbers(10, 1), b = numbers(10, 2), c = numbers(std::size_t{1} << 18, 3);
    if (runtime.topology().rank == 0) {
      CallerReference first = runtime.send(message(a, 1, 7)), second = runtime.send(message(b, 1, 7, 5)),
                      third = runtime.send(message(c, 1, -1));
      for (CallerReference* handle : {&first, &second, &third}) await(std::move(*handle));
    } else {
      Numbers in_a(a.size()), in_b(b.size()), in_c(c.size());
      await(runtime.receive(message(in_c, 0, -1)));
      await(runtime.receive(message(in_b, 0, 7, 5)));
      await(runtime.receive(message(in_a, 0, 7)));
      require(in_a == a && in_b == b && in_c == c, "a message went to another receive");
    }
  });
}

TEST_CASE("a receive from any rank says which it was") {
  run_ranks({.layout = {.ranks_by_host = {2, 2}}, .environment = {}}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    Numbers value{rank};
    if (rank != 0) return await(runtime.send(message(value, 0, 4)));
    std::vector<bool> heard(4);
    for (int i = 1; i < 4; ++i) {
      CallerReference handle = runtime.receive(message(value, kAnyRank, 4));
      require(handle->wait(deadline_after(kTimeout)) && handle->completion.status().ok(), "no message");
      require(handle->completion.source == value.front(), "the source is not the sender");
      heard.at(static_cast<std::size_t>(value.front())) = true;
    }
    require(heard == std::vector<bool>{false, true, true, true}, "not one message of each rank");
  });
}

TEST_CASE("thousands of messages may wait for their receives, in whatever order these come") {
  const Layout layout = two_ranks();
  INFO(layout.name());
  run_ranks({.layout = layout, .environment = {}}, [](Runtime& runtime) {
    constexpr int kMessages = 3000;
    std::vector<Numbers> all;  // 12 MB: a dozen times the credit
    std::vector<CallerReference> handles;
    const int rank = runtime.topology().rank;
    for (int i = 0; i < kMessages; ++i) all.push_back(rank == 0 ? numbers(1000, i) : Numbers(1000));
    for (int i = 0; i < kMessages; ++i) {
      const auto n = static_cast<std::size_t>(kMessages - 1 - i);
      if (rank == 0) handles.push_back(runtime.send(message(all[static_cast<std::size_t>(i)], 1, i)));
      if (rank == 1) handles.push_back(runtime.receive(message(all[n], 0, static_cast<std::int64_t>(n))));
    }
    for (CallerReference& handle : handles) await(std::move(handle));
    for (int i = 0; i < kMessages; ++i) require(all[static_cast<std::size_t>(i)].front() == i, "mixed up");
  });
}

TEST_CASE("a message of the wrong size is an error that says both, and nothing else suffers") {
  const Layout layout = two_ranks();
  INFO(layout.name());
  run_ranks({.layout = layout, .environment = {}}, [](Runtime& runtime) {
    const int rank = runtime.topology().rank;
    for (const std::size_t size : {std::size_t{3}, std::size_t{1} << 20}) {
      Numbers sent = numbers(size, 0), wrong(size - 1), right(size);
      if (rank == 0) {
        const Status end = end_of(runtime.send(message(sent, 1)));
        require(end.ok() == (size == 3), "the sender of a large message is to hear of it: " + end.message());
        await(runtime.send(message(sent, 1)));
      } else {
        const Status end = end_of(runtime.receive(message(wrong, 0)));
        require(end.code() == StatusCode::mismatch, "no mismatch: " + end.message());
        for (const std::size_t bytes : {4 * size, 4 * (size - 1)}) {
          require(end.message().find(std::to_string(bytes) + " bytes") != std::string::npos, end.message());
        }
        await(runtime.receive(message(right, 0)));
        require(right == sent, "the next message came otherwise");
      }
    }
  });
}

TEST_CASE("a channel without descriptors fails all transfers, and can be closed") {
  const int more = GENERATE(1, 2);  // the eventfd; the epoll too, but no socket
  Store store;
  const Topology topology = make_topology(
      0, {{.host_key = "host", .hostname = "host", .pid = 1}, {.host_key = "host", .hostname = "host", .pid = 2}});
  const JobKey key = JobKey::random();
  const Config config;
  AbortFlag abort;
  const Log log("test", LogLevel::off);
  const auto metrics = std::make_shared<Metrics>();
  const auto channel = make_socket_channel({.topology = topology,
                                            .store = store,
                                            .job_key = key,
                                            .config = config,
                                            .abort = abort,
                                            .log = log,
                                            .local_host_address = "127.0.0.1",
                                            .deadline = deadline_after(kTimeout)});
  Numbers value{0};
  const auto expect_failure = [&](void (Channel::*transfer)(const Message&, EngineReference)) {
    OperationReferences operation = make_message_operation(metrics);
    (*channel.*transfer)(message(value, 1), std::move(operation.engine));
    const Status end = end_of(std::move(operation.caller));
    CHECK(end.code() == StatusCode::internal);
    CHECK(end.message().find("Too many open files") != std::string::npos);
  };
  {
    const DescriptorLimit limit(more);
    expect_failure(&Channel::receive);
  }
  expect_failure(&Channel::send);
  expect_failure(&Channel::receive);
  channel->close();
  CHECK(store.add(ChannelParts::ready_key(0), 0) == 0);
}

TEST_CASE("messages that have waited for long are named once, with their ranks and tags") {
  const CapturedStderr captured;
  const Environment environment = {{"HVD_STALL_CHECK_TIME_SECONDS", "0.2"}, {"HVD_LOG_LEVEL", "warning"}};
  run_ranks({.layout = {.ranks_by_host = {2}}, .environment = environment}, [&](Runtime& runtime) {
    Numbers one{1}, another{2}, large = numbers(std::size_t{1} << 20, 3);
    const int other = 1 - runtime.topology().rank;
    std::vector<CallerReference> handles;
    if (other == 1) {
      handles.push_back(runtime.receive(message(one, 1, 3)));
      handles.push_back(runtime.receive(message(another, kAnyRank, 4)));
      handles.push_back(runtime.send(message(large, 1, 5)));
    } else {
      const Deadline deadline = deadline_after(kTimeout);
      const std::string expected[] = {"for a message of tag 3 from rank 1", "for a message of tag 4 from any rank",
                                      "to send a message of tag 5 to rank 1"};
      for (const std::string& text : expected) {
        while (captured.count(text) == 0 && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
      }
      std::this_thread::sleep_for(300ms);  // in which it could be named again
      for (const std::string& text : expected) require(captured.count(text) == 1, "not once: " + text);
      handles.push_back(runtime.send(message(one, 0, 3)));
      handles.push_back(runtime.send(message(another, 0, 4)));
      handles.push_back(runtime.receive(message(large, 0, 5)));
    }
    for (CallerReference& handle : handles) await(std::move(handle));
  });
}

TEST_CASE("a rank whose messages make no sense fails what waits for them, and all that comes later") {
  PeerOfTest of_test;
  CallerReference waiting = of_test.receive();
  const std::array<std::byte, kMessageFrameBytes> nonsense{};
  REQUIRE(of_test.other.send_some(nonsense) == nonsense.size());
  of_test.peer.handle(EventSource::incoming);
  const Status end = end_of(std::move(waiting));
  CHECK(end.code() == StatusCode::internal);
  CHECK(end.message().find("the messages of rank 1 on host (pid 2) make no sense") != std::string::npos);
  CHECK_FALSE(of_test.peer.broken().ok());
}

TEST_CASE("a rank whose connection closes is given up once nobody has told the cause") {
  PeerOfTest of_test;
  CallerReference waiting = of_test.receive();
  of_test.other = Socket();
  of_test.peer.handle(EventSource::incoming);
  CHECK(of_test.peer.broken().ok());
  const Deadline given_up = of_test.peer.next_deadline();
  CHECK(given_up < deadline_after(kTimeout));
  std::this_thread::sleep_until(given_up);
  of_test.peer.make_progress();
  const Status end = end_of(std::move(waiting));
  CHECK(end.code() == StatusCode::peer_lost);
  CHECK(end.message().find("closed its connection for messages") != std::string::npos);
}

TEST_CASE("a peer that cannot be is refused") {
  run_ranks({.layout = {.ranks_by_host = {2}}, .environment = {}}, [](Runtime& runtime) {
    Numbers value{1};
    for (const int peer : {runtime.topology().rank, 2, -2, kAnyRank}) {
      try {
        runtime.send(message(value, peer));
        require(false, "rank " + std::to_string(peer) + " was taken");
      } catch (const InvalidArgument&) {
      }
    }
  });
}

}  // namespace hvd::testing
