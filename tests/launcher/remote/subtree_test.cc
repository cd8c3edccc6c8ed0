#include "launcher/remote/subtree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/bootstrap/store_origin.h"
#include "core/net/endpoint.h"
#include "launcher/remote/messages.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace hvd::launcher {
namespace {

int depth(const std::vector<int>& parents, int host) {
  int steps = 1;
  for (; parents[static_cast<std::size_t>(host)] >= 0; host = parents[static_cast<std::size_t>(host)]) ++steps;
  return steps;
}

TEST_CASE("hvdrun starts the agents of up to 64 hosts itself") {
  for (const int hosts : {1, 4, 64}) {
    const std::vector<int> parents = agent_tree(hosts);
    CHECK(static_cast<int>(parents.size()) == hosts);
    CHECK(std::all_of(parents.begin(), parents.end(), [](int parent) { return parent == -1; }));
  }
}

TEST_CASE("in larger jobs everybody starts 32 at most, and the tree is flat") {
  struct Case {
    int hosts, depth;
  };
  for (const Case& test : {Case{65, 2}, Case{1056, 2}, Case{1057, 3}, Case{20'000, 3}}) {
    const std::vector<int> parents = agent_tree(test.hosts);
    std::vector<int> children(parents.size() + 1);
    int deepest = 0;
    for (int host = 0; host < test.hosts; ++host) {
      const int parent = parents[static_cast<std::size_t>(host)];
      REQUIRE(parent < host);
      ++children[static_cast<std::size_t>(parent + 1)];
      deepest = std::max(deepest, depth(parents, host));
    }
    CHECK(*std::max_element(children.begin(), children.end()) == 32);
    CHECK(deepest == test.depth);
  }
}

TEST_CASE("hvdrun starts all agents itself where one command starts several") {
  std::vector<Subtree::Child> agents(65);
  for (int host = 0; host < 65; ++host) {
    agents[static_cast<std::size_t>(host)] = {.host = host, .name = "", .start_command = "ssh " + std::to_string(host)};
  }
  CHECK(agent_tree(agents) == agent_tree(65));
  for (Subtree::Child& agent : agents) agent.start_command = "srun";
  CHECK(agent_tree(agents) == std::vector<int>(65, -1));
}

// hvdrun's side of agents, whose commands this test chooses, and its children.
struct Parent {
  SignalSource signals;
  EventLoop loop;
  StoreOrigin store;
  testing::TemporaryFolder folder;
  std::vector<proto::FromAgent> received;
  std::set<int> lost;
  std::unique_ptr<Subtree> subtree;

  explicit Parent(Duration start_timeout) {
    subtree = std::make_unique<Subtree>(
        loop, signals, store,
        Subtree::Options{.certificate = make_certificate(),
                         .addresses = {"127.0.0.1"},
                         .agents = {.interfaces = {}, .lease = 60s, .grace = 1s, .start_timeout = start_timeout}},
        Subtree::Listener{.received = [this](const proto::FromAgent& message) { received.push_back(message); },
                          .lost = [this](int host, const std::string&) { lost.insert(host); },
                          .started = [](pid_t) {},
                          .warning = [](const std::string&) {}});
  }

  bool run_until(const std::function<bool()>& condition) {
    for (const Deadline deadline = deadline_after(60s); Clock::now() < deadline;) {
      if (condition()) return true;
      loop.run_once(std::min(deadline, deadline_after(10ms)));  // the agents' ends have no events of their own
      for (const auto& [pid, status] : reap_children()) subtree->child_ended(pid, status);
    }
    return condition();
  }

  // What the command that kept its standard input has been told.
  proto::Bootstrap bootstrap() const {
    const FileDescriptor input(open((folder / "input").c_str(), O_RDONLY | O_CLOEXEC));
    return read_bootstrap(input.get(), deadline_after(60s));
  }
};

// An agent's connection, and what comes there.
struct ConnectedAgent {
  std::unique_ptr<LinkToParent> link;
  std::vector<proto::ToAgent> received;

  ConnectedAgent(Parent& parent, int host) {
    const proto::Bootstrap bootstrap = parent.bootstrap();
    link = connect_to_parent(parent.loop, {.certificate = bootstrap.certificate(), .key = bootstrap.key()},
                             Address::parse(bootstrap.addresses(0)), deadline_after(60s));
    link->listen({.received = [this](const proto::ToAgent& message) { received.push_back(message); },
                  .lost = [](const std::string&) {}});
    proto::FromAgent hello;
    hello.set_host(static_cast<std::uint32_t>(host));
    hello.mutable_hello();
    link->send(std::move(hello));
  }
  bool is_dismissed() const {
    return std::ranges::any_of(received, [](const proto::ToAgent& message) { return message.has_goodbye(); });
  }
};

TEST_CASE("a start command is killed once none of its agents is awaited") {
  Parent parent(0s);
  parent.subtree->start({{.host = 4, .name = "h4", .start_command = "exec sleep 600"}});
  REQUIRE(parent.run_until([&] { return parent.lost.contains(4); }));
  CHECK(parent.run_until([&] { return parent.subtree->empty(); }));
}

TEST_CASE("one agent is dismissed, and the others stay") {
  Parent parent(60s);
  const std::string command =
      "cd " + parent.folder.path() + "; cat > part && mv part input; exec sleep 600";  // for both agents
  parent.subtree->start(
      {{.host = 0, .name = "h0", .start_command = command}, {.host = 1, .name = "h1", .start_command = command}});
  REQUIRE(parent.run_until([&] { return std::filesystem::exists(parent.folder / "input"); }));
  const ConnectedAgent late(parent, 0), used(parent, 1);
  REQUIRE(parent.run_until([&] { return parent.received.size() == 2; }));
  parent.subtree->dismiss(0);
  REQUIRE(parent.run_until([&] { return late.is_dismissed(); }));
  CHECK_FALSE(used.is_dismissed());
  CHECK(parent.lost.empty());
}

}  // namespace
}  // namespace hvd::launcher
