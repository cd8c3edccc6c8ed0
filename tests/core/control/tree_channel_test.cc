// The end of a locked schedule is heard on every rank, however it is reached. What else a channel does, the tests of
// the whole runtime show.
#include "core/control/tree/tree_channel.h"

#include <sys/socket.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "core/control/negotiator.h"
#include "core/control/tree/control_region.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"

using Catch::Matchers::Contains;
using namespace hvd;

// The error of the next send() or recv(), as of a process that lacks memory; 0: none.
static std::atomic<int> error_of_send{0}, error_of_receive{0};
// How often a closed connection was sent on.
static std::atomic<int> sends_on_closed{0};

// In place of the C library's.
extern "C" ssize_t send(int fd, const void* bytes, size_t count, int flags) {
  if (fd < 0) ++sends_on_closed;
  errno = error_of_send.exchange(0);
  return errno != 0 ? -1 : sendto(fd, bytes, count, flags, nullptr, 0);
}
extern "C" ssize_t recv(int fd, void* bytes, size_t count, int flags) {
  errno = error_of_receive.exchange(0);
  return errno != 0 ? -1 : recvfrom(fd, bytes, count, flags, nullptr, nullptr);
}

namespace {

std::vector<RankIdentity> identities(const std::vector<int>& ranks_by_host) {
  std::vector<RankIdentity> all;
  for (std::size_t host = 0; host < ranks_by_host.size(); ++host) {
    const std::string name = "host-" + std::to_string(host);
    for (int i = 0; i < ranks_by_host[host]; ++i) all.push_back({.host_key = name, .hostname = name, .pid = 100 + i});
  }
  return all;
}

// What the channels of all ranks of a job have in common.
struct JobOfThreads {
  explicit JobOfThreads(const std::vector<int>& ranks_by_host) : ranks(identities(ranks_by_host)) {}

  std::unique_ptr<ControlChannel> connect(const Topology& topology, bool shared_memory, AbortFlag& abort,
                                          Metrics& metrics, Duration timeout = 20s) {
    return make_tree_channel({.topology = topology,
                              .store = store,
                              .key = key,
                              .local_host = "127.0.0.1",
                              .shared_memory = shared_memory,
                              .abort = abort,
                              .log = log,
                              .metrics = metrics,
                              .deadline = deadline_after(timeout)});
  }

  const std::vector<RankIdentity> ranks;
  Store store;
  const JobKey key = JobKey::random();
  const Log log{"test", LogLevel::off};
};

// Runs the body on each rank, as a thread; returns what has failed.
std::string on_channels(const std::vector<int>& ranks_by_host, bool shared_memory,
                        const std::function<void(int rank, ControlChannel& channel)>& body) {
  JobOfThreads job(ranks_by_host);
  std::vector<std::string> failures(job.ranks.size());
  std::barrier<> end(static_cast<std::ptrdiff_t>(job.ranks.size()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      AbortFlag abort;
      Metrics metrics;
      const Topology topology = make_topology(static_cast<int>(rank), job.ranks);
      const std::unique_ptr<ControlChannel> channel = job.connect(topology, shared_memory, abort, metrics);
      try {
        body(static_cast<int>(rank), *channel);
      } catch (const std::exception& error) {
        failures[rank] = "rank " + std::to_string(rank) + ": " + error.what() + "\n";
      }
      end.arrive_and_wait();
      channel->close(deadline_after(1s));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string text;
  for (const std::string& failure : failures) text += failure;
  return text;
}

// Sleeps as an engine does; nothing but the news wakes it in time.
void await_break(ControlChannel& channel, std::uint64_t lock_number) {
  const Deadline delay = deadline_after(20s);
  for (;;) {
    channel.receive();
    const std::uint64_t requested = channel.break_requested();
    if (requested == lock_number) return;
    if (requested > lock_number) throw Internal("hears of " + std::to_string(requested) + " instead");
    if (Clock::now() >= delay) throw Timeout("heard of no break " + std::to_string(lock_number));
    channel.wait(channel.doorbell_seen(), delay, nullptr);
  }
}

void await_raised(const AbortFlag& abort) {
  const Deadline soon = deadline_after(20s);
  while (!abort.raised() && Clock::now() < soon) std::this_thread::sleep_for(1ms);
}

// Two connected ranks on two hosts.
struct TwoHosts {
  TwoHosts() {
    auto other = std::async(std::launch::async, [this] { return job.connect(of_1, false, abort_of_1, metrics_of_1); });
    channel_of_0 = job.connect(of_0, false, abort_of_0, metrics_of_0);
    channel_of_1 = other.get();
  }

  JobOfThreads job{{1, 1}};
  const Topology of_0 = make_topology(0, job.ranks), of_1 = make_topology(1, job.ranks);
  AbortFlag abort_of_0, abort_of_1;
  Metrics metrics_of_0, metrics_of_1;
  std::unique_ptr<ControlChannel> channel_of_0, channel_of_1;
};

struct Hosts {
  std::vector<int> ranks;
  bool shared_memory = true;
};

Hosts any_hosts() {
  const auto hosts = GENERATE(values<Hosts>({{{4}}, {{4}, false}, {{1, 1, 1, 1}}, {{2, 2}}, {{1, 3}}, {{3, 1}}}));
  UNSCOPED_INFO(hosts.ranks.size() << " hosts, the first with " << hosts.ranks.front());
  return hosts;
}

}  // namespace

TEST_CASE("star channel: whoever asks for a break, every rank hears of it, and nobody of an earlier one") {
  const Hosts hosts = any_hosts();
  std::barrier<> heard(4);
  const std::string failures = on_channels(hosts.ranks, hosts.shared_memory, [&](int rank, ControlChannel& channel) {
    for (int turn = 0; turn < 12; ++turn) {
      const auto lock_number = static_cast<std::uint64_t>(10 * (turn + 2));
      if (rank == turn % 4) {
        channel.request_break(lock_number - 11);
        channel.request_break(lock_number);
      }
      await_break(channel, lock_number);
      heard.arrive_and_wait();
    }
  });
  CHECK(failures == "");
}

TEST_CASE("star channel: all may ask for a break at once") {
  const Hosts hosts = any_hosts();
  const std::string failures = on_channels(hosts.ranks, hosts.shared_memory, [&](int, ControlChannel& channel) {
    channel.request_break(7);
    await_break(channel, 7);
  });
  CHECK(failures == "");
}

TEST_CASE("star channel: whoever does not connect is named on all ranks, and not the one that gave up") {
  JobOfThreads job({1, 1, 1});
  AbortFlag abort_of_0, abort_of_1;
  Metrics metrics_of_0, metrics_of_1;
  const Topology of_0 = make_topology(0, job.ranks), of_1 = make_topology(1, job.ranks);
  Status failure;
  std::thread rank_0([&] {
    try {
      job.connect(of_0, false, abort_of_0, metrics_of_0, 2s);
    } catch (const Error& error) {
      failure = error.status();
    }
  });
  const auto channel = job.connect(of_1, false, abort_of_1, metrics_of_1);
  rank_0.join();
  CHECK(failure.code() == StatusCode::timeout);
  CHECK(failure.culprit() == 2);
  CHECK(abort_of_0.reason() == failure);  // whatever else this rank waits for ends, too

  await_raised(abort_of_1);
  CHECK(abort_of_1.reason().code() == StatusCode::aborted);
  CHECK(abort_of_1.reason().culprit() == 2);
  CHECK_THAT(abort_of_1.reason().message(), Contains("rank 0") && Contains("the control connection of rank 2"));
  channel->close(deadline_after(1s));
}

TEST_CASE("star channel: a rank that cannot connect names the one that it waits for") {
  JobOfThreads job({1, 1});
  AbortFlag abort;
  Metrics metrics;
  const Topology topology = make_topology(1, job.ranks);
  try {
    job.connect(topology, false, abort, metrics, 100ms);
    FAIL("connected to nobody");
  } catch (const Error& error) {
    CHECK(error.code() == StatusCode::timeout);
    CHECK(error.status().culprit() == 0);
  }
}

TEST_CASE("star channel: a rank that cannot send any more ends the job, and takes the blame") {
  TwoHosts ranks;
  error_of_send = ENOBUFS;
  ranks.channel_of_1->send(0, Bytes(3));
  await_raised(ranks.abort_of_1);
  CHECK(ranks.abort_of_1.reason().code() == StatusCode::internal);
  CHECK(ranks.abort_of_1.reason().culprit() == 1);
  CHECK_THAT(ranks.abort_of_1.reason().message(), Contains("send: No buffer space"));
  await_raised(ranks.abort_of_0);
  CHECK(ranks.abort_of_0.reason().culprit() == 1);
}

TEST_CASE("star channel: the error for an unreadable message of the coordinator names the rank that it came from") {
  TwoHosts ranks;
  Timeline timeline(ranks.job.log);
  Negotiator negotiator(ranks.of_1, Config(), *ranks.channel_of_1, ranks.metrics_of_1, timeline, 1, false);
  ranks.channel_of_0->send(1, Bytes(3));
  const Deadline deadline = deadline_after(10s);
  const auto await_message = [&] {
    while (Clock::now() < deadline) negotiator.next(Clock::now());
  };
  CHECK_THROWS_WITH(await_message(), Contains("which came from rank 0, cannot be read"));
}

TEST_CASE("star channel: a message that does not fit into a mailbox arrives whole, between others") {
  const std::string failures = on_channels({2}, true, [](int rank, ControlChannel& channel) {
    Bytes large(std::size_t{5} << 20);
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i * 7 >> 3);
    const std::vector<Bytes> messages{Bytes(3), large, Bytes(1), large, Bytes(2)};
    if (rank == 0) {
      for (const Bytes& message : messages) channel.send(1, message);
    }
    for (std::size_t next = 0; rank == 1 && next < messages.size();) {
      if (const auto arrived = channel.receive())
        testing::require(arrived->payload == messages[next++], "another message");
    }
    channel.flush(deadline_after(10s));
  });
  CHECK(failures == "");
}

TEST_CASE("star channel: a rank that cannot receive any more ends the job, and takes the blame") {
  TwoHosts ranks;
  error_of_receive = ENOMEM;
  ranks.channel_of_1->send(0, Bytes(3));
  await_raised(ranks.abort_of_0);
  CHECK(ranks.abort_of_0.reason().code() == StatusCode::internal);
  CHECK(ranks.abort_of_0.reason().culprit() == 0);
  await_raised(ranks.abort_of_1);
  CHECK(ranks.abort_of_1.reason().code() == StatusCode::aborted);
  CHECK(ranks.abort_of_1.reason().culprit() == 0);
  CHECK_THAT(ranks.abort_of_1.reason().message(), Contains("recv: Cannot allocate memory"));
}

TEST_CASE("star channel: what is sent after the close goes nowhere") {
  TwoHosts ranks;
  ranks.channel_of_0->close(deadline_after(1s));
  ranks.channel_of_0->send(1, Bytes(3));
  ranks.channel_of_0->broadcast_abort(Status(StatusCode::internal, "late"));
  CHECK(sends_on_closed == 0);
  ranks.channel_of_1->close(deadline_after(1s));
  CHECK_FALSE(ranks.abort_of_1.raised());
}

TEST_CASE("star channel: a rank that does not read is the culprit, by its number in the job") {
  JobOfThreads job({2, 2});
  AbortFlag abort_of_0, abort_of_1;
  Metrics metrics;
  const Topology of_0 = make_subset(make_topology(2, job.ranks), {2, 3});
  const Topology of_1 = make_subset(make_topology(3, job.ranks), {2, 3});
  auto other = std::async(std::launch::async, [&] { return job.connect(of_1, true, abort_of_1, metrics); });
  const auto channel = job.connect(of_0, true, abort_of_0, metrics);
  const auto channel_of_other = other.get();
  channel->send(1, Bytes(2 * ByteRing::kBytes));
  Status failure;
  try {
    channel->flush(Clock::now());
  } catch (const Error& error) {
    failure = error.status();
  }
  CHECK(failure.code() == StatusCode::timeout);
  CHECK(failure.culprit() == 3);

  Timeline timeline(job.log);
  const Negotiator negotiator(of_1, Config(), *channel_of_other, metrics, timeline, 1, false);
  CHECK(negotiator.silence_of_parent(Clock::now()).culprit() == 2);
}

TEST_CASE("a mailbox whose reader has written to it is an error for its writer") {
  const auto ring = std::make_unique<ByteRing>();
  const Bytes message(8);
  CHECK(ring->write(message) == 8);
  const std::uint64_t beyond = 9;
  std::memcpy(reinterpret_cast<std::byte*>(ring.get()) + 128, &beyond, sizeof beyond);  // the reader's position
  CHECK_THROWS_AS(ring->write(message), Internal);
}
