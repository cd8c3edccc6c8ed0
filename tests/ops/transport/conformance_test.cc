// What transport.h promises, on every transport.
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"
#include "tests/support/sanitized.h"
#include "tests/support/timeouts.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Buffer = std::vector<std::byte>;

Buffer pattern(std::size_t size, unsigned seed) {
  Buffer bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed * 17 + i / 256) & 0xff);
  return bytes;
}

Tag tag_of(std::uint32_t step) { return {.process_set = 3, .step = step, .sequence = 17}; }

void require_failure(const Status& status, StatusCode code, const std::vector<std::string>& parts) {
  CAPTURE(status.message());
  CHECK(std::string(status_code_name(status.code())) == status_code_name(code));
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(has(status.message(), part));
  }
}

TransportKind any_kind() { return GENERATE(TransportKind::local, TransportKind::tcp, TransportKind::striped_tcp); }

}  // namespace

TEST_CASE("messages between each pair arrive in order, whatever order they are waited for in") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  constexpr int kRanks = 3;
  constexpr std::uint32_t kMessages = 100;
  std::atomic<int> wrong{0};
  run_all_well({.kind = kind, .size = kRanks}, [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    std::vector<Buffer> sent, received, expected;
    for (int peer = 0; peer < kRanks; ++peer) {
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        const std::size_t size = i % 7 == 0 ? 0 : i * i;
        sent.push_back(pattern(size, i + static_cast<unsigned>(100 * rank + 10 * peer)));
        expected.push_back(pattern(size, i + static_cast<unsigned>(100 * peer + 10 * rank)));
        received.emplace_back(size);
      }
    }
    std::vector<Transport::RequestId> requests;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        const std::size_t at = static_cast<std::size_t>(peer) * kMessages + i;
        requests.push_back(transport->post_send(peer, tag_of(i), sent[at]));
        requests.push_back(transport->post_receive(peer, tag_of(i), received[at]));
      }
    }
    for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
      transport->wait(*request, deadline_after(20s));
    }
    for (std::size_t at = 0; at < received.size(); ++at) {
      const bool own = static_cast<int>(at / kMessages) == rank;
      if (!own && received[at] != expected[at]) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("what may not come for long is looked for in vain without harm, and comes later") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  std::atomic<bool> looked{false};
  std::atomic<int> wrong{0};
  run_all_well({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Buffer bytes = pattern(transport->rank() == 0 ? 0 : 100, 1);
    if (transport->rank() == 1) {
      while (!looked) std::this_thread::yield();
      transport->wait(transport->post_send(peer, tag_of(0), bytes), deadline_after(20s));
      return;
    }
    bytes.resize(100);
    const auto request = transport->post_receive(peer, tag_of(0), bytes);
    for (const Duration timeout : {Duration(-1s), Duration(0), Duration(1ms), Duration(20ms)}) {
      const TimePoint until = deadline_after(timeout);
      wrong += transport->wait_until(request, until);
      wrong += Clock::now() < until;
    }
    looked = true;
    while (!transport->wait_until(request, deadline_after(1ms))) {
    }
    wrong += bytes != pattern(100, 1);
    try {  // it is over, as after wait()
      transport->wait_until(request, deadline_after(1ms));
      ++wrong;
    } catch (const InvalidArgument&) {
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("what may not come for long ends with a lost peer and with an abort, too") {
  const auto kind = any_kind();
  const bool aborts = GENERATE(false, true);
  CAPTURE(transport_name(kind), aborts);
  AbortFlag abort;
  const Status reason(StatusCode::aborted, "it is over");
  const auto ended =
      run_transport_ranks({.kind = kind, .size = 2, .abort = &abort}, [&](std::unique_ptr<Transport> transport) {
        if (transport->rank() == 1) {
          if (aborts) abort.raise(reason);
          return;
        }
        Buffer bytes(100);
        transport->wait_until(transport->post_receive(1, tag_of(0), bytes), deadline_after(20s));
      });
  require_failure(ended[0], aborts ? StatusCode::aborted : StatusCode::peer_lost,
                  {aborts ? "it is over" : "lost the connection to rank 1"});
}

TEST_CASE("large messages in both directions at once do not block each other") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  constexpr std::size_t kBytes = (kSanitized ? 8 : 32) << 20;
  std::atomic<int> wrong{0};
  run_all_well({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    const Buffer out = pattern(kBytes, static_cast<unsigned>(transport->rank()));
    Buffer in(kBytes);
    const auto send = transport->post_send(peer, tag_of(0), out);
    const auto receive = transport->post_receive(peer, tag_of(0), in);
    transport->wait(send, deadline_after(20s));
    transport->wait(receive, deadline_after(20s));
    if (in != pattern(kBytes, static_cast<unsigned>(peer))) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("a message that was not expected fails the receiver, with both values in the text") {
  const auto kind = any_kind();
  struct Case {
    Tag sent;
    std::size_t bytes;
    std::string named;
  };
  const auto c = GENERATE(values<Case>({{{3, 8, 17}, 100, "process set 3, call 17, step 8, 100 bytes"},
                                        {{3, 7, 18}, 100, "process set 3, call 18, step 7, 100 bytes"},
                                        {{4, 7, 17}, 100, "process set 4, call 17, step 7, 100 bytes"},
                                        {{3, 7, 17}, 99, "process set 3, call 17, step 7, 99 bytes"},
                                        {{3, 7, 17}, 0, "process set 3, call 17, step 7, 0 bytes"},
                                        {{3, 7, 17}, 1 << 20, "process set 3, call 17, step 7, 1048576 bytes"}}));
  CAPTURE(transport_name(kind), c.named);
  const Buffer out = pattern(c.bytes, 1);
  const auto ended = run_transport_ranks({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    if (transport->rank() == 1) {
      transport->wait(transport->post_send(0, c.sent, out), deadline_after(20s));
    } else {
      Buffer in(100);
      transport->wait(transport->post_receive(1, {3, 7, 17}, in), deadline_after(20s));
    }
  });
  require_failure(ended[0], StatusCode::internal,
                  {"rank 1", "out of step", c.named, "process set 3, call 17, step 7, 100 bytes"});
  // The sender sees at worst that the other one is gone; it does not wait.
  if (!ended[1].ok()) require_failure(ended[1], StatusCode::peer_lost, {"rank 0"});
}

TEST_CASE("a peer that is gone fails what still needs it, and nothing else") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));

  SECTION("a receive, at once") {
    const auto ended = run_transport_ranks({.kind = kind, .size = 3}, [&](std::unique_ptr<Transport> transport) {
      if (transport->rank() == 1) return;
      Buffer in(10);
      transport->wait(transport->post_receive(transport->rank() == 0 ? 1 : 0, tag_of(4), in), deadline_after(20s));
    });
    require_failure(ended[0], StatusCode::peer_lost, {"rank 1", "receiving", "step 4", "10 bytes"});
    require_failure(ended[2], StatusCode::peer_lost, {"rank 0"});  // which failed and left
  }
  SECTION("a send that it does not take") {
    const Buffer out = pattern(64 << 20, 1);
    const auto ended = run_transport_ranks({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
      if (transport->rank() == 1) return;
      transport->wait(transport->post_send(1, tag_of(4), out), deadline_after(20s));
    });
    require_failure(ended[0], StatusCode::peer_lost, {"rank 1", "sending", "step 4"});
  }
  SECTION("not the work with others") {
    run_all_well({.kind = kind, .size = 3}, [&](std::unique_ptr<Transport> transport) {
      if (transport->rank() == 2) return;
      const Buffer out = pattern(1000, 1);
      Buffer in(1000);
      const int peer = 1 - transport->rank();
      for (std::uint32_t i = 0; i < 50; ++i) {
        const auto send = transport->post_send(peer, tag_of(i), out);
        transport->wait(transport->post_receive(peer, tag_of(i), in), deadline_after(20s));
        transport->wait(send, deadline_after(20s));
      }
    });
  }
}

TEST_CASE("what was sent arrives even if the sender leaves at once") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  constexpr std::size_t kBytes = 8 << 20;
  const Buffer out = pattern(kBytes, 5);
  std::atomic<bool> same{false};
  run_all_well({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    if (transport->rank() == 1) {
      transport->post_send(0, tag_of(0), out);
      transport->post_send(0, tag_of(1), out);
      return;
    }
    Buffer in(kBytes);
    transport->wait(transport->post_receive(1, tag_of(0), in), deadline_after(20s));
    transport->wait(transport->post_receive(1, tag_of(1), in), deadline_after(20s));
    same = in == out;
  });
  CHECK(same);
}

TEST_CASE("a timeout says what was waited for") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  std::atomic<bool> done{false};
  Duration took{};
  const auto ended = run_transport_ranks({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    if (transport->rank() == 1) {
      const Deadline timeout = deadline_after(20s);
      while (!done && Clock::now() < timeout) std::this_thread::yield();
      return;
    }
    Buffer in(4096);
    const TimePoint start = Clock::now();
    try {
      transport->wait(transport->post_receive(1, tag_of(7), in), deadline_after(100ms));
    } catch (...) {
      took = Clock::now() - start;
      done = true;
      throw;
    }
  });
  require_failure(ended[0], StatusCode::timeout,
                  {"waited ", " s for rank 1 on host (pid 0) to send process set 3, call 17, step 7, 4096 bytes"});
  const std::string& told = ended[0].message();
  const double waited = std::stod(told.substr(told.find("waited ") + 7));
  CHECK(waited >= 0.1);
  CHECK(waited <= seconds(took) + 0.05);  // rounded
}

TEST_CASE("a raised abort flag ends a wait soon, with its reason", "[timed]") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  AbortFlag abort;
  std::atomic<int> ready{0};
  TimePoint raised;
  std::thread raiser([&] {
    const Deadline timeout = deadline_after(20s);
    while (ready < 2 && Clock::now() < timeout) std::this_thread::yield();
    raised = Clock::now();
    abort.raise(Status(StatusCode::peer_lost, "rank 5 on host-c died"));
  });
  const auto ended =
      run_transport_ranks({.kind = kind, .size = 2, .abort = &abort}, [&](std::unique_ptr<Transport> transport) {
        Buffer in(10);
        const auto request = transport->post_receive(1 - transport->rank(), tag_of(0), in);
        ++ready;
        transport->wait(request, deadline_after(20s));
      });
  raiser.join();
  CHECK(Clock::now() - raised < testing::at_most(1s));
  for (const Status& status : ended) require_failure(status, StatusCode::peer_lost, {"rank 5 on host-c died"});
}

TEST_CASE("misuse is an error of the caller") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  std::vector<StatusCode> codes;
  run_all_well({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    Buffer in(1);
    const Buffer out(1);
    const int peer = 1 - transport->rank();
    const auto send = transport->post_send(peer, tag_of(0), out);
    const auto receive = transport->post_receive(peer, tag_of(0), in);
    transport->wait(receive, deadline_after(20s));
    transport->wait(send, deadline_after(20s));
    if (transport->rank() != 0) return;
    const std::vector<std::function<void()>> misuses = {
        [&] { transport->wait(receive, deadline_after(20s)); },
        [&] { transport->wait(receive + 100, deadline_after(20s)); },
        [&] { transport->post_send(0, tag_of(1), out); },
        [&] { transport->post_receive(2, tag_of(1), in); },
        [&] { transport->post_receive(-1, tag_of(1), in); },
    };
    for (const auto& misuse : misuses) {
      try {
        misuse();
        codes.push_back(StatusCode::ok);
      } catch (const Error& error) {
        codes.push_back(error.code());
      }
    }
  });
  CHECK(codes == std::vector<StatusCode>(5, StatusCode::invalid_argument));
}

TEST_CASE("a transport that has failed says so instead of waiting") {
  const auto kind = any_kind();
  CAPTURE(transport_name(kind));
  const auto ended = run_transport_ranks({.kind = kind, .size = 2}, [&](std::unique_ptr<Transport> transport) {
    if (transport->rank() == 1) return;
    Buffer in(1);
    try {
      transport->wait(transport->post_receive(1, tag_of(0), in), deadline_after(20s));
    } catch (const PeerLost&) {
    }
    transport->post_receive(1, tag_of(1), in);
  });
  require_failure(ended[0], StatusCode::internal, {"after it failed"});
}
