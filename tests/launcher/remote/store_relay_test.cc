#include "launcher/remote/store_relay.h"

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/store_server.h"
#include "launcher/processes/event_loop.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Answers = std::vector<std::string>;

StoreRequest set(const std::string& key, const std::string& value) {
  return {.operation = StoreOperation::set, .key = key, .value = value};
}
StoreRequest get(const std::string& key) { return {.operation = StoreOperation::get, .key = key}; }
StoreRequest add(const std::string& key, std::int64_t amount) {
  return {.operation = StoreOperation::add, .key = key, .amount = amount};
}

// A relay whose parent is the test. Notes what was asked as "<id> <key>", and heard as "<who>: <code> <text>".
struct Desk {
  Answers asked, heard;
  StoreRelay relay;

  explicit Desk(std::size_t kept_bytes = kMaxRelayBytes)
      : relay([this](std::uint64_t id,
                     const StoreRequest& request) { asked.push_back(std::to_string(id) + " " + request.key); },
              kept_bytes) {}

  StoreSource::RequestId ask(const std::string& who, StoreRequest request) {
    return relay.ask(std::move(request), [this, who](StatusCode code, std::string_view text) {
      heard.push_back(who + ": " + status_code_name(code) + " " + std::string(text));
    });
  }
  Answers take_asked() { return std::exchange(asked, {}); }
  Answers take_heard() { return std::exchange(heard, {}); }
};

// Messages that lie in between until somebody delivers one.
class Mail {
 public:
  void post(std::function<void()> message) { messages_.push_back(std::move(message)); }
  bool deliver() {
    if (messages_.empty()) return false;
    const auto message = std::move(messages_.front());
    messages_.pop_front();
    message();
    return true;
  }

 private:
  std::deque<std::function<void()>> messages_;
};

// An agent that is linked to its parent by memory: each direction in order, both as late as it likes.
struct Agent {
  explicit Agent(StoreSource& parent)
      : relay([this](std::uint64_t id, StoreRequest request) {
          if (!branch) return;
          ++requests;
          up.post([this, id, request = std::move(request)] {
            if (branch) branch->ask(id, request);
          });
        }),
        branch(std::make_unique<StoreBranch>(parent, [this](std::uint64_t id, StatusCode code, std::string_view text) {
          down.post([this, id, code, text = std::string(text)] { relay.answered(id, code, text); });
        })) {}

  // Both ends notice.
  void cut() {
    branch.reset();
    relay.lost("the test has cut the link");
  }

  int requests = 0;
  Mail up, down;
  StoreRelay relay;
  std::unique_ptr<StoreBranch> branch;  // the parent's
};

}  // namespace

TEST_CASE("several that want one key are one request, and then it is known") {
  Desk desk;
  CHECK(desk.ask("a", get("k")) != 0);
  CHECK(desk.ask("b", get("k")) != 0);
  CHECK(desk.ask("c", get("other")) != 0);
  CHECK(desk.take_asked() == Answers{"1 k", "3 other"});
  desk.relay.answered(1, StatusCode::ok, "value");
  CHECK(desk.take_heard() == Answers{"a: ok value", "b: ok value"});
  CHECK(desk.ask("d", get("k")) == 0);
  CHECK(desk.take_heard() == Answers{"d: ok value"});
  CHECK(desk.take_asked().empty());
}

TEST_CASE("sets and adds are passed on each, in order") {
  Desk desk;
  desk.ask("a", set("k", "v"));
  desk.ask("b", add("k", 1));
  desk.ask("c", add("k", 1));
  CHECK(desk.take_asked() == Answers{"1 k", "2 k", "3 k"});
  desk.relay.answered(3, StatusCode::ok, "1");
  desk.relay.answered(1, StatusCode::ok, "");
  desk.relay.answered(2, StatusCode::invalid_argument, "full");
  CHECK(desk.take_heard() == Answers{"c: ok 1", "a: ok ", "b: invalid argument full"});
}

TEST_CASE("a refusal is passed on and not kept") {
  Desk desk;
  desk.ask("a", get("k"));
  desk.relay.answered(1, StatusCode::invalid_argument, "no");
  desk.ask("a", get("k"));
  CHECK(desk.take_heard() == Answers{"a: invalid argument no"});
  CHECK(desk.take_asked() == Answers{"1 k", "2 k"});
}

TEST_CASE("who gave up hears nothing; the answer is kept for the next one") {
  Desk desk;
  desk.relay.forget(desk.ask("a", get("k")));
  desk.relay.forget(desk.ask("b", add("n", 1)));
  const auto joined = desk.ask("c", get("k"));  // the request is still under way
  desk.relay.forget(joined);
  desk.relay.forget(joined);
  CHECK(desk.take_asked() == Answers{"1 k", "2 n"});
  desk.relay.answered(1, StatusCode::ok, "value");
  desk.relay.answered(2, StatusCode::ok, "1");
  CHECK(desk.take_heard().empty());
  CHECK(desk.ask("d", get("k")) == 0);
  CHECK(desk.take_heard() == Answers{"d: ok value"});
}

TEST_CASE("answers that nobody asked for are passed over, too long ones are an error") {
  Desk desk;
  desk.relay.answered(0, StatusCode::ok, "x");
  desk.relay.answered(7, StatusCode::ok, "x");
  desk.ask("a", get("k"));
  desk.relay.answered(1, StatusCode::ok, std::string(kMaxStoreValueBytes + 1, 'x'));
  desk.relay.answered(1, StatusCode::ok, "late");
  CHECK(desk.take_heard() == Answers{"a: internal the answer of the store is too long"});
}

TEST_CASE("what is kept is bounded, what is answered is not") {
  Desk desk(1'000);
  desk.ask("a", get("small"));
  desk.relay.answered(1, StatusCode::ok, "s");
  desk.ask("a", get("large"));
  desk.relay.answered(2, StatusCode::ok, std::string(2'000, 'x'));
  CHECK(desk.take_heard().back().size() > 2'000);
  CHECK(desk.ask("a", get("large")) != 0);
  CHECK(desk.ask("a", get("small")) != 0);  // begun anew
}

TEST_CASE("open requests are bounded") {
  Desk desk;
  for (std::size_t i = 0; i < kMaxOpenStoreRequests; ++i) desk.ask("a", get(std::to_string(i)));
  CHECK(desk.take_heard().empty());
  CHECK(desk.ask("b", get("one more")) == 0);
  CHECK(desk.ask("c", add("n", 1)) == 0);
  CHECK(desk.ask("d", get("17")) != 0);
  CHECK(desk.take_heard().size() == 2);
  CHECK(desk.ask("e", get(std::string(kMaxStoreKeyBytes + 1, 'k'))) == 0);
  CHECK(desk.take_heard().size() == 1);
}

TEST_CASE("when the parent is lost everybody hears it, once, and so does who asks afterwards") {
  Desk desk;
  desk.ask("a", get("k"));
  desk.ask("b", get("k"));
  desk.ask("c", add("n", 1));
  desk.relay.forget(desk.ask("d", add("n", 1)));
  desk.relay.lost("gone");
  auto heard = desk.take_heard();
  std::sort(heard.begin(), heard.end());
  CHECK(heard == Answers{"a: peer lost gone", "b: peer lost gone", "c: peer lost gone"});
  CHECK(desk.ask("e", get("k")) == 0);
  desk.relay.answered(1, StatusCode::ok, "late");
  CHECK(desk.take_heard() == Answers{"e: peer lost gone"});
}

TEST_CASE("a branch answers with the agent's ids, and refuses one that is under way") {
  StoreOrigin origin;
  Answers sent;
  StoreBranch branch(origin, [&](std::uint64_t id, StatusCode code, std::string_view text) {
    sent.push_back(std::to_string(id) + ": " + status_code_name(code) + " " + std::string(text));
  });
  branch.ask(7, get("k"));
  branch.ask(7, get("other"));
  branch.ask(9, set("k", "v"));
  branch.ask(7, add("n", 2));
  CHECK(sent == Answers{"7: invalid argument a request with this id is under way", "9: ok ", "7: ok v", "7: ok 2"});
}

TEST_CASE("what a lost agent waited for is forgotten") {
  StoreOrigin origin;
  Agent lost(origin), other(origin);
  int heard = 0;
  for (Agent* agent : {&lost, &other}) {
    for (const char* key : {"k", "l"}) agent->relay.ask(get(key), [&](StatusCode, std::string_view) { ++heard; });
    while (agent->up.deliver()) {
    }
  }
  CHECK(origin.parked() == 4);
  lost.cut();
  CHECK(heard == 2);
  CHECK(origin.parked() == 2);
}

TEST_CASE("three levels agree, in whatever order messages come") {
  std::mt19937 random(GENERATE(1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u));
  StoreOrigin origin;
  Agent middle(origin), left(middle.relay), right(middle.relay), lone(origin);
  const std::vector<Agent*> agents{&middle, &left, &right, &lone};
  const std::vector<StoreSource*> places{&origin, &middle.relay, &left.relay, &right.relay, &lone.relay};
  // Everybody gets every key, sets some, and adds to one counter.
  constexpr int kKeys = 20, kGets = 3;
  int values = 0, sets = 0;
  std::vector<std::int64_t> sums;
  std::vector<std::function<void()>> steps;
  for (StoreSource* place : places) {
    for (int i = 0; i < kKeys * kGets; ++i) {
      const std::string key = std::to_string(i % kKeys);
      steps.emplace_back([&, place, key] {
        place->ask(get(key), [&, key](StatusCode code, std::string_view text) {
          CHECK((code == StatusCode::ok && text == "value of " + key));
          ++values;
        });
      });
    }
    steps.emplace_back([&, place] {
      place->ask(add("n", 1),
                 [&](StatusCode, std::string_view text) { sums.push_back(std::stoll(std::string(text))); });
    });
  }
  for (int i = 0; i < kKeys; ++i) {
    StoreSource* place = places[static_cast<std::size_t>(i) % places.size()];
    steps.emplace_back([&, place, key = std::to_string(i)] {
      place->ask(set(key, "value of " + key), [&](StatusCode, std::string_view) { ++sets; });
    });
  }
  std::shuffle(steps.begin(), steps.end(), random);
  while (!steps.empty()) {
    steps.back()();
    steps.pop_back();
    Agent& agent = *agents[random() % agents.size()];
    (random() % 2 == 0 ? agent.up : agent.down).deliver();
  }
  for (bool any = true; any;) {
    any = false;
    for (Agent* agent : agents) any = agent->up.deliver() || agent->down.deliver() || any;
  }
  CHECK(values == kKeys * kGets * static_cast<int>(places.size()));
  CHECK(sets == kKeys);
  std::sort(sums.begin(), sums.end());
  CHECK(sums == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  CHECK(origin.parked() == 0);
  // A key once, 4 sets of its own, one add; the middle one's also for those below it.
  CHECK(lone.requests == kKeys + kKeys / 5 + 1);
  CHECK(middle.requests == kKeys + 3 * (kKeys / 5 + 1));
}

TEST_CASE("ranks at three levels meet: one request per key and relay, and the loss of the middle") {
  EventLoop loop;
  const Log log("test", LogLevel::off);
  const JobKey key = JobKey::random();
  StoreOrigin origin;
  Agent middle(origin), below(middle.relay);
  std::vector<std::unique_ptr<StoreServer>> servers;
  for (StoreSource* source : std::initializer_list<StoreSource*>{&origin, &middle.relay, &below.relay}) {
    servers.push_back(std::make_unique<StoreServer>(key, "127.0.0.1", *source, log));
    loop.watch(servers.back()->fd(), EPOLLIN, [&serving = *servers.back()] { serving.serve_now(); });
  }
  const auto step = [&] {
    loop.run_once(deadline_after(1ms));
    for (Agent* agent : {&middle, &below}) {
      while (agent->up.deliver() || agent->down.deliver()) {
      }
    }
  };
  const auto finish = [&](auto& futures) {
    for (auto& future : futures) {
      while (future.wait_for(0s) != std::future_status::ready) step();
    }
  };
  constexpr int kRanks = 64;
  std::vector<std::future<std::string>> gets;
  for (int rank = 0; rank < kRanks; ++rank) {
    gets.push_back(std::async(std::launch::async, [&, rank] {
      const Store store = Store::connect(servers[rank % 2 == 0 ? 1 : 2]->address(), key, rank, deadline_after(20s));
      store.add("n", 1);
      if (rank == 0) store.set("k", "value");
      return store.get("k", deadline_after(20s));
    }));
  }
  finish(gets);
  for (auto& value : gets) CHECK(value.get() == "value");
  CHECK(below.requests == kRanks / 2 + 1);  // an add for each rank, and one get
  CHECK(middle.requests == kRanks + 2);     // also the set

  const auto never = [&](int place) {
    return std::async(std::launch::async, [&, place] {
      const Address& address = servers[static_cast<std::size_t>(place)]->address();
      const Store store = Store::connect(address, key, place, deadline_after(20s));
      store.get("never", deadline_after(20s));
    });
  };
  std::vector<std::future<void>> waiting;
  for (const int place : {0, 1, 2}) waiting.push_back(never(place));
  while (origin.parked() < 2 || below.requests < kRanks / 2 + 2) step();
  middle.cut();
  below.cut();  // its parent is gone
  std::vector<std::future<void>> late;
  late.push_back(never(2));
  finish(late);
  CHECK_THROWS_AS(late[0].get(), PeerLost);
  while (waiting[1].wait_for(0s) != std::future_status::ready || waiting[2].wait_for(0s) != std::future_status::ready) {
    step();
  }
  CHECK_THROWS_AS(waiting[1].get(), PeerLost);
  CHECK_THROWS_AS(waiting[2].get(), PeerLost);
  CHECK(origin.parked() == 1);  // hvdrun's own rank does not care
  origin.ask(set("never", "after all"), [](StatusCode, std::string_view) {});
  while (waiting[0].wait_for(0s) != std::future_status::ready) step();
  CHECK_NOTHROW(waiting[0].get());
}

}  // namespace hvd::launcher
