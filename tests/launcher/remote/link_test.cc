// Both ends of the link between agents and their parent.
#include <cstdio>
#include <cstdlib>

#include "launcher/remote/grpc_link.h"
#include "launcher/remote/link.h"
#include "launcher/remote/rpc_stream.h"
#include "tests/launcher/remote/link_fixture.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

constexpr int kMany = 10'000;

// What a program that is started now finds open.
std::string descriptors_of_a_child() {
  FILE* child = popen("ls /proc/self/fd", "r");
  REQUIRE(child != nullptr);
  std::string text;
  for (int c = std::fgetc(child); c != EOF; c = std::fgetc(child)) text += static_cast<char>(c);
  pclose(child);
  return text;
}

constexpr TimePoint kStart{};

TEST_CASE("a lease is five beats long") {
  LinkLease lease(5s, kStart);
  CHECK(lease.beat_is_due(kStart));
  CHECK_FALSE(lease.beat_is_due(kStart + 999ms));
  CHECK(lease.next_deadline() == kStart + 1s);
  CHECK(lease.beat_is_due(kStart + 1s));
}

TEST_CASE("who is silent for a lease is gone") {
  LinkLease lease(5s, kStart);
  lease.heard(kStart + 2s);
  for (const Duration since : {2s, 4s, 6s}) CHECK_FALSE(lease.has_expired(kStart + since));
  CHECK_FALSE(lease.has_expired(kStart + 6999ms));
  CHECK(lease.has_expired(kStart + 7s));
}

TEST_CASE("silence means nothing while the job is stopped on purpose") {
  LinkLease lease(5s, kStart);
  lease.pause(true, kStart + 1s);
  CHECK_FALSE(lease.has_expired(kStart + 100s));
  lease.pause(false, kStart + 100s);
  for (const Duration since : {102s, 104s}) CHECK_FALSE(lease.has_expired(kStart + since));
  CHECK(lease.has_expired(kStart + 105s));
}

TEST_CASE("who was stopped itself first gives the other end a moment") {
  LinkLease lease(5s, kStart);
  CHECK_FALSE(lease.has_expired(kStart + 60s));
  CHECK_FALSE(lease.has_expired(kStart + 60s + 999ms));
  CHECK(lease.has_expired(kStart + 61s));
}

}  // namespace

TEST_CASE("an agent says hello and is answered") {
  LinkFixture job;
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  CHECK(agent->link->peer() == "127.0.0.1:" + std::to_string(job.listener->port()));
  CHECK(job.parents[0]->link->peer().starts_with("127.0.0.1:"));

  proto::FromAgent hello;
  hello.mutable_hello()->set_hostname("node7");
  agent->link->send(hello);
  CHECK(job.run_until([&] { return !job.parents[0]->received.empty(); }));
  CHECK(job.parents[0]->received[0].hello().hostname() == "node7");
  job.parents[0]->link->send(signal_number(15));
  CHECK(job.run_until([&] { return !agent->received.empty(); }));
  CHECK(agent->received[0].signal().signal() == 15);
  CHECK(job.run_until([&] { return agent->link->all_sent() && job.parents[0]->link->all_sent(); }));
  CHECK(agent->lost.empty());
}

TEST_CASE("messages arrive in order, each way at once") {
  LinkFixture job;
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  ParentEnd& parent = *job.parents[0];
  for (int i = 0; i < kMany; ++i) {
    agent->link->send(started(i));
    parent.link->send(signal_number(i));
  }
  REQUIRE(job.run_until([&] { return agent->received.size() == kMany && parent.received.size() == kMany; }));
  for (int i = 0; i < kMany; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (parent.received[at].rank_started().pid() != i) FAIL("from the agent: " << i);
    if (agent->received[at].signal().signal() != i) FAIL("to the agent: " << i);
  }
}

TEST_CASE("who destroys its link when all is sent has said everything") {
  LinkFixture job;
  const bool agent_goes = GENERATE(true, false);
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  ParentEnd& parent = *job.parents[0];
  for (int i = 0; i < 1000; ++i) {
    agent->link->send(started(i));
    parent.link->send(signal_number(i));
  }
  CHECK(job.run_until([&] { return agent->link->all_sent() && parent.link->all_sent(); }));
  if (agent_goes) {
    agent->link.reset();
    CHECK(job.run_until([&] { return !parent.lost.empty(); }));
    CHECK(parent.received.size() == 1000);
    CHECK(parent.lost == std::vector<std::string>{"it has ended the connection"});
  } else {
    parent.link.reset();
    CHECK(job.run_until([&] { return !agent->lost.empty(); }));
    CHECK(agent->received.size() == 1000);
    CHECK(agent->lost == std::vector<std::string>{"it has ended the connection"});
  }
}

TEST_CASE("a link whose other end goes in the middle is lost once") {
  LinkFixture job;
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  ParentEnd& parent = *job.parents[0];
  proto::FromAgent output;
  output.mutable_output()->set_bytes(std::string(1 << 20, 'x'));
  for (int i = 0; i < 50; ++i) agent->link->send(output);
  agent->link.reset();
  CHECK(job.run_until([&] { return !parent.lost.empty(); }));
  CHECK(parent.received.size() < 50);
  CHECK_FALSE(parent.lost[0].empty());
  parent.link->send(signal_number(1));  // dropped
  CHECK_FALSE(job.run_until([&] { return parent.lost.size() > 1; }, 100ms));
}

TEST_CASE("a listener that goes takes its links with it") {
  LinkFixture job;
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  job.listener.reset();
  CHECK(job.run_until([&] { return !agent->lost.empty() && !job.parents[0]->lost.empty(); }));
  CHECK_FALSE(agent->lost[0].empty());
  CHECK_FALSE(job.parents[0]->lost[0].empty());
}

TEST_CASE("a link may be destroyed by what it delivers") {
  LinkFixture job;
  auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  auto other = job.attach();
  REQUIRE(job.parents.size() == 2);
  int delivered = 0;
  auto link = connect_to_parent(job.loop, job.certificate, job.address(), deadline_after(20s));
  link->listen({.received =
                    [&](const proto::ToAgent&) {
                      ++delivered;
                      link.reset();
                    },
                .lost = [](const std::string&) {}});
  REQUIRE(job.run_until([&] { return job.parents.size() == 3; }));
  ParentEnd& parent = *job.parents[2];
  for (int i = 0; i < 100; ++i) parent.link->send(signal_number(i));
  CHECK(job.run_until([&] { return !parent.lost.empty(); }));
  CHECK(delivered == 1);
}

TEST_CASE("a message that is too long ends the stream at both ends") {
  LinkFixture job;
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  const std::string bytes(kLongestMessage + 1, 'x');
  if (GENERATE(true, false)) {
    proto::FromAgent output;
    output.mutable_output()->set_bytes(bytes);
    agent->link->send(output);
  } else {
    proto::ToAgent input;
    input.mutable_input()->set_bytes(bytes);
    job.parents[0]->link->send(input);
  }
  CHECK(job.run_until([&] { return !agent->lost.empty() && !job.parents[0]->lost.empty(); }));
  CHECK(agent->received.empty());
  CHECK(job.parents[0]->received.empty());
}

TEST_CASE("links come and go at any moment") {
  LinkFixture job;
  for (int i = 0; i < 60; ++i) {
    const auto agent = job.attach();
    REQUIRE_FALSE(job.parents.empty());
    for (int k = 0; k < i; ++k) {
      agent->link->send(started(k));
      job.parents.back()->link->send(signal_number(k));
    }
    if (i % 3 == 0) job.parents.back()->link.reset();
    if (i % 4 == 0) job.parents.erase(job.parents.begin());
  }
  const auto last = job.attach();
  last->link->send(started(1));
  CHECK(job.run_until([&] { return !job.parents.back()->received.empty(); }));
}

TEST_CASE("a proxy and fork support that the environment asks for are the ranks' alone") {
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy"}) setenv(name, "http://127.0.0.1:1", 1);
  setenv("GRPC_ENABLE_FORK_SUPPORT", "1", 1);
  setenv("GRPC_VERBOSITY", "DEBUG", 1);
  LinkFixture job;
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  CHECK(std::getenv("GRPC_ENABLE_FORK_SUPPORT") == std::string("1"));
}

TEST_CASE("a program that is started has nothing of the connections open") {
  const std::string before = descriptors_of_a_child();
  LinkFixture job;
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  CHECK(descriptors_of_a_child() == before);
  agent->link->send(started(1));
  CHECK(job.run_until([&] { return !job.parents[0]->received.empty(); }));
}

TEST_CASE("names of peers") {
  CHECK(peer_name("ipv4:10.9.0.2:41822") == "10.9.0.2:41822");
  CHECK(peer_name("ipv6:%5Bfe80::1%5D:41822") == "[fe80::1]:41822");
  CHECK(peer_name("unix:/a") == "unix:/a");
  CHECK(peer_name("ipv4") == "ipv4");
  CHECK(peer_name("").empty());
}

}  // namespace hvd::launcher
