// Peers that know the job's key and do not keep to the protocol: the server drops them, says so once, and serves on.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/net/byte_codec.h"
#include "core/net/shared_memory.h"
#include "parameters/client.h"
#include "parameters/message.h"
#include "parameters/pipe.h"
#include "parameters/server.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/process_entries.h"
#include "tests/support/temporary_folder.h"

namespace hvd {
namespace {

constexpr Duration kLong = 20s;

// A server with a table, and a worker that behaves.
class AttackedServer {
 public:
  explicit AttackedServer(bool shares_memory) : shares_memory_(shares_memory) {
    const ServerOptions options{.shares_memory = shares_memory, .host_key = "here"};
    server_ = std::make_unique<ParameterServer>(options, store_, key_, log_);
    thread_ = start_thread("server", [this] { server_->run(); });
    const WorkerOptions of_worker{.workers = 2,
                                  .start_timeout = 20s,
                                  .shares_memory = shares_memory,
                                  .host_key = "here",
                                  .wait = kOversubscribedPolicy};
    worker = std::make_unique<ParameterClient>(of_worker, store_, key_, log_);
    TableSpec spec;
    spec.name = "rows";
    spec.width = 64;
    spec.optimizer.rule = UpdateRule::add;
    table = worker->open(spec);
  }
  ~AttackedServer() {
    server_->stop();
    thread_.join();
  }

  // Whether the worker gets an answer, and the right one.
  bool serves() {
    const std::vector<std::uint64_t> keys = {1, 2};
    std::vector<float> values(128, 1.0f);
    ++pushes_;
    return worker->wait(worker->push_pull(table, {.keys = keys, .gradients = values.data(), .rows = values.data()}),
                        deadline_after(kLong)) &&
           values[0] == static_cast<float>(pushes_) && values[127] == static_cast<float>(pushes_);
  }

  Socket connect() {
    const ServerAddresses addresses =
        decode_value<ServerAddresses>(store_.get(ps_keys::place(0, 1), deadline_after(kLong)));
    return connect_authenticated(Address::parse(shares_memory_ ? addresses.local : addresses.remote), key_,
                                 Purpose::parameters, 1, deadline_after(kLong));
  }
  Address remote() {
    return Address::parse(
        decode_value<ServerAddresses>(store_.get(ps_keys::place(0, 1), deadline_after(kLong))).remote);
  }
  std::unique_ptr<Pipe> connect_pipe() {
    return make_worker_pipe(connect(), shares_memory_, kDefaultLease, kOversubscribedPolicy, deadline_after(kLong));
  }

  // Processor time that the server has taken.
  Duration cpu_time() {
    clockid_t clock = 0;
    timespec time{};
    pthread_getcpuclockid(thread_.native_handle(), &clock);
    clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

  std::unique_ptr<ParameterClient> worker;
  int table = 0;

 private:
  const bool shares_memory_;
  Store store_;
  JobKey key_ = JobKey::random();
  Log log_{"test", LogLevel::warning};
  std::unique_ptr<ParameterServer> server_;
  std::thread thread_;
  int pushes_ = 0;
};

void put_frame(Pipe& pipe, PsRequest request, std::span<const std::byte> payload = {}) {
  const std::size_t bytes = ps_frame_bytes(payload.size());
  std::byte* const to = pipe.room(bytes);
  REQUIRE(to != nullptr);
  std::memcpy(to, &request, sizeof request);
  if (!payload.empty()) std::memcpy(to + kPsHeaderBytes, payload.data(), payload.size());
  pipe.commit(bytes);
  pipe.flush();
}

void put_hello(Pipe& pipe) {
  const PsHello hello{.workers = 2};
  put_frame(pipe, {.op = PsOp::hello, .incarnation = 1, .worker = 1, .bytes = sizeof hello},
            std::as_bytes(std::span(&hello, 1)));
}

// The next answer's status.
std::uint32_t next_status(Pipe& pipe) {
  const Deadline deadline = deadline_after(kLong);
  std::span<const std::byte> input;
  while ((input = pipe.input()).size() < kPsHeaderBytes && Clock::now() < deadline) pipe.wait(deadline);
  REQUIRE(input.size() >= kPsHeaderBytes);
  const PsAnswer answer = parse_answer(input.first<kPsHeaderBytes>());
  while (pipe.input().size() < ps_frame_bytes(answer.bytes) && Clock::now() < deadline) pipe.wait(deadline);
  pipe.consume(ps_frame_bytes(answer.bytes));
  return answer.status;
}

// Whether the server closes the connection.
bool is_dropped(Pipe& pipe) {
  const Deadline deadline = deadline_after(kLong);
  try {
    while (Clock::now() < deadline) {
      pipe.consume(pipe.input().size());
      pipe.flush();
      pipe.wait(deadline);
    }
  } catch (const PeerLost&) {
    return true;
  }
  return false;
}

TEST_CASE("who does not keep to the protocol is dropped, and the others are served") {
  const bool shares_memory = GENERATE(false, true);
  const PsRequest pull{.op = PsOp::pull, .sequence = 1, .incarnation = 1, .worker = 1};
  const auto with = [&](const std::function<void(PsRequest&)>& change) {
    PsRequest request = pull;
    change(request);
    return request;
  };
  const Bytes one_key(8);
  struct Case {
    const char* name;
    PsRequest request;
    Bytes payload;
  };
  const std::vector<Case> cases = {
      {"no magic", with([](PsRequest& r) { r.magic = 0x20544547; }), {}},
      {"a payload that is too long", with([](PsRequest& r) { r.bytes = 0xffffffff; }), {}},
      {"too many rows", with([](PsRequest& r) { r.rows = kMaxPsRows + 1; }), {}},
      {"no such request", with([](PsRequest& r) { r.op = PsOp{200}; }), {}},
      {"more rows than keys", with([](PsRequest& r) { r.rows = 5, r.bytes = 8; }), one_key},
      {"fewer rows than keys", with([](PsRequest& r) { r.bytes = 8; }), one_key},
      {"keys and no gradients", with([](PsRequest& r) { r.op = PsOp::push, r.rows = 1, r.bytes = 8; }), one_key},
      {"half a rate", with([](PsRequest& r) { r.op = PsOp::learning_rate, r.bytes = 8; }), one_key},
      {"half a greeting", with([](PsRequest& r) { r.op = PsOp::hello; }), {}},
      {"half a table", with([](PsRequest& r) { r.op = PsOp::open_table, r.bytes = 8; }), one_key},
  };
  const CapturedStderr captured;
  {
    AttackedServer server(shares_memory);
    for (const auto& [name, request, payload] : cases) {
      INFO(name);
      const auto pipe = server.connect_pipe();
      put_hello(*pipe);
      put_frame(*pipe, request, payload);
      CHECK(is_dropped(*pipe));
      CHECK(server.serves());
    }
  }
  INFO(captured.text());
  CHECK(captured.count("drops the connection of worker 1") == static_cast<int>(cases.size()));
}

TEST_CASE("requests that mean nothing are answered, and the connection lives on") {
  const bool shares_memory = GENERATE(false, true);
  AttackedServer server(shares_memory);
  const auto pipe = server.connect_pipe();
  put_frame(*pipe, {.op = PsOp::pull, .incarnation = 1, .worker = 1});  // before any greeting
  put_hello(*pipe);
  put_frame(*pipe, {.op = PsOp::pull, .table = 77, .incarnation = 1, .worker = 1});
  put_frame(*pipe, {.op = PsOp::pull, .incarnation = 1, .worker = 1, .shard = 9});
  put_frame(*pipe, {.op = PsOp::pull, .incarnation = 9, .worker = 1});
  put_frame(*pipe, {.op = PsOp::snapshot, .incarnation = 1, .worker = 1});  // in no folder
  put_frame(*pipe, {.op = PsOp::pull, .incarnation = 1, .worker = 1});
  const auto invalid = static_cast<std::uint32_t>(StatusCode::invalid_argument);
  const auto aborted = static_cast<std::uint32_t>(StatusCode::aborted);
  const auto unsupported = static_cast<std::uint32_t>(StatusCode::unsupported);  // ask another server
  for (const std::uint32_t expected : {invalid, 0u, invalid, unsupported, aborted, invalid, 0u}) {
    CHECK(next_status(*pipe) == expected);
  }
  CHECK(server.serves());
}

TEST_CASE("what was refused is refused again when its answer was lost, though later requests were applied") {
  AttackedServer server(false);
  const auto invalid = static_cast<std::uint32_t>(StatusCode::invalid_argument);
  const PsRequest clock{.op = PsOp::clock, .sequence = 2, .incarnation = 1, .worker = 1, .clock = 1};
  const float rate = -1, other = 1;
  const PsRequest wrong{.op = PsOp::learning_rate, .sequence = 1, .incarnation = 1, .worker = 1, .bytes = sizeof rate};
  const auto lost = server.connect_pipe();
  put_hello(*lost);
  put_frame(*lost, wrong, std::as_bytes(std::span(&rate, 1)));
  put_frame(*lost, clock);
  for (const std::uint32_t expected : {0u, invalid, 0u}) CHECK(next_status(*lost) == expected);
  const auto pipe = server.connect_pipe();
  put_hello(*pipe);
  put_frame(*pipe, wrong, std::as_bytes(std::span(&other, 1)));  // now it could be
  put_frame(*pipe, clock);
  for (const std::uint32_t expected : {0u, invalid, 0u}) CHECK(next_status(*pipe) == expected);
  CHECK(server.serves());
}

TEST_CASE("positions in shared memory that are overwritten harm nobody else") {
  const CapturedStderr captured;
  {
    AttackedServer server(true);
    for (const std::size_t at : {0u, 384u}) {  // what the worker writes: its requests' end, its answers' begin
      for (const std::uint64_t position : {std::uint64_t{1} << 63, std::uint64_t{kPipeBytes} + 1}) {
        Socket socket = server.connect();
        const SharedMemory memory =
            SharedMemory::map(socket.receive_descriptor(deadline_after(kLong), "server"), 4096 + 2 * kPipeBytes, 4096);
        if (at != 0) {
          const PsRequest question{.op = PsOp::stats};
          MappedRange requests = memory.map_range(4096, 4096);
          std::memcpy(requests.data(), &question, sizeof question);
          const std::uint64_t end = sizeof question;
          std::memcpy(memory.data() + at, &position, sizeof position);
          std::memcpy(memory.data(), &end, sizeof end);
        } else {
          std::memcpy(memory.data(), &position, sizeof position);
        }
        const std::byte wakeup{1};
        socket.send_all(std::span(&wakeup, 1), deadline_after(kLong), "server");
        std::array<std::byte, 1> nothing;
        // How far a worker has read is looked at when there seems to be no room.
        if (at == 0) CHECK_THROWS_AS(socket.receive_all(nothing, deadline_after(kLong), "server"), PeerLost);
        CHECK(server.serves());
      }
    }
  }
  INFO(captured.text());
  CHECK(captured.count("positions of a parameter server's pipe were overwritten") == 2);
}

TEST_CASE("bytes without end on the socket beside shared memory do not keep the server") {
  AttackedServer server(true);
  Socket socket = server.connect();
  const FileDescriptor memory = socket.receive_descriptor(deadline_after(kLong), "server");
  std::atomic<bool> ends{false};
  std::thread flood([&] {
    const Bytes garbage(std::size_t{1} << 20);
    while (!ends && socket.send_some(garbage)) continue;
    ends = true;
  });
  CHECK(server.serves());
  const Deadline deadline = deadline_after(kLong);
  while (!ends && Clock::now() < deadline) std::this_thread::yield();
  CHECK(ends);  // it was dropped
  ends = true;
  flood.join();
  CHECK(server.serves());
}

TEST_CASE("a worker that reads no answers costs nothing") {
  const bool shares_memory = GENERATE(false, true);
  AttackedServer server(shares_memory);
  const auto pipe = server.connect_pipe();
  put_hello(*pipe);
  const PsRequest pull{.op = PsOp::pull, .incarnation = 1, .worker = 1, .rows = 1000, .bytes = 8000};
  const Bytes keys(8000);
  // Until neither more requests nor more answers fit.
  Deadline quiet = deadline_after(30ms);
  for (int sent = 0; Clock::now() < quiet && sent < 10'000;) {
    std::byte* const to = pipe->room(ps_frame_bytes(keys.size()));
    if (to == nullptr) {
      pipe->flush();
      continue;
    }
    std::memcpy(to, &pull, sizeof pull);
    std::memcpy(to + kPsHeaderBytes, keys.data(), keys.size());
    pipe->commit(ps_frame_bytes(keys.size()));
    pipe->flush();
    quiet = deadline_after(30ms);
    ++sent;
  }
  CHECK(server.serves());
  std::this_thread::sleep_for(5ms);
  const Duration before = server.cpu_time();
  std::this_thread::sleep_for(50ms);
  CHECK(server.cpu_time() - before < 10ms);
  CHECK(server.serves());
}

TEST_CASE("a worker that waits for others costs nothing") {
  const bool shares_memory = GENERATE(false, true);
  AttackedServer server(shares_memory);
  const auto pipe = server.connect_pipe();
  put_hello(*pipe);
  TableSpec spec;
  spec.name = "waits";
  spec.consistency = Consistency::bounded;
  ByteWriter bytes;
  bytes.put(spec);
  const Bytes payload = bytes.take();
  put_frame(*pipe, {.op = PsOp::open_table, .bytes = static_cast<std::uint32_t>(payload.size())}, payload);
  for (int i = 0; i < 3; ++i)
    put_frame(*pipe, {.op = PsOp::pull, .table = 1, .incarnation = 1, .worker = 1, .clock = 9});
  std::byte* const half = pipe->room(kPsHeaderBytes);
  std::memset(half, 0, 8);
  pipe->commit(8);
  pipe->flush();
  CHECK(server.serves());
  std::this_thread::sleep_for(5ms);
  const Duration before = server.cpu_time();
  std::this_thread::sleep_for(50ms);
  CHECK(server.cpu_time() - before < 10ms);
}

TEST_CASE("connections that end in the middle of a frame, or never say anything, leave nothing behind") {
  const bool shares_memory = GENERATE(false, true);
  const auto resident = [] {
    std::size_t pages = 0, ignored = 0;
    FILE* const file = std::fopen("/proc/self/statm", "r");
    const int fields = std::fscanf(file, "%zu %zu", &ignored, &pages);
    std::fclose(file);
    REQUIRE(fields == 2);
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  };
  AttackedServer server(shares_memory);
  CHECK(server.serves());
  const auto before = testing::count_descriptors();
  for (int round = 0; round < 100; ++round) {
    const auto pipe = server.connect_pipe();
    if (round % 2 == 0) put_hello(*pipe);
    const PsRequest request{.op = PsOp::pull, .rows = 100, .bytes = 800};
    std::byte* const to = pipe->room(kPsHeaderBytes);
    std::memcpy(to, &request, sizeof request);
    pipe->commit(round % 3 == 0 ? 8 : kPsHeaderBytes);
    pipe->flush();
  }
  CHECK(server.serves());
  {
    const std::size_t bytes = resident();
    std::vector<Socket> idle;
    for (int i = 0; i < 200; ++i) idle.push_back(server.connect());
    CHECK(server.serves());
#if !defined(HVD_SANITIZED)
    CHECK(resident() < bytes + 200 * (std::size_t{64} << 10));
#else
    (void)bytes;
#endif
  }
  const Deadline deadline = deadline_after(kLong);
  while (testing::count_descriptors() > before && Clock::now() < deadline) CHECK(server.serves());
  CHECK(testing::count_descriptors() <= before);
}

TEST_CASE("a server that has no descriptor left for a connection serves those that it has") {
  const CapturedStderr captured;
  {
    AttackedServer server(false);
    const Address address = server.remote();
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(address.port), .sin_addr = {}, .sin_zero = {}};
    REQUIRE(inet_pton(AF_INET, address.host.c_str(), &to.sin_addr) == 1);
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const FileDescriptor last(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const rlimit none_left{.rlim_cur = static_cast<rlim_t>(last.get()) + 1, .rlim_max = limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none_left) == 0);
    CHECK(::connect(last.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    for (int i = 0; i < 10; ++i) CHECK(server.serves());
    const Duration before = server.cpu_time();
    std::this_thread::sleep_for(50ms);
    CHECK(server.cpu_time() - before < 15ms);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const auto pipe = server.connect_pipe();
    CHECK(server.serves());
  }
  CHECK(captured.count("accepts no more connections") == 1);
}

TEST_CASE("an answer that is held back from its beginning does not leave the server's socket") {
  Listener listener = Listener::tcp("127.0.0.1");
  Socket worker = Socket::connect(listener.address(), deadline_after(kLong));
  REQUIRE(wait_ready(listener.fd(), false, deadline_after(kLong)));
  const auto pipe = make_server_pipe(std::move(*listener.accept_now()), false, kDefaultLease, deadline_after(kLong));
  for (const std::uint64_t expected : {0u, 64u}) {
    std::byte* const answer = pipe->room(64);
    REQUIRE(answer != nullptr);
    std::memset(answer, 1, 64);
    const std::uint64_t begin = pipe->committed();  // asked while the answer is written, as the server does
    CHECK(begin == expected);
    pipe->commit(64);
    CHECK(pipe->committed() == expected + 64);
    pipe->hold_behind(begin);
    pipe->flush();
    CHECK_FALSE(wait_ready(worker.fd(), false, deadline_after(50ms)));
    pipe->hold_behind(kHoldNothing);
    pipe->flush();
    REQUIRE(wait_ready(worker.fd(), false, deadline_after(kLong)));
    Bytes arrived(64);
    worker.receive_all(arrived, deadline_after(kLong), "server");
  }
}

TEST_CASE("a server whose copy of a shard is lost half made waits for the next one") {
  const Store store;
  const JobKey key = JobKey::random();
  const Log log{"test", LogLevel::error};
  store.add(ps_keys::starts(0), 1);  // restarted: its shard is at the other server
  ParameterServer server({.servers = 2, .copies = 2}, store, key, log);
  std::thread thread = start_thread("server", [&] { server.run(); });
  const ServerAddresses addresses =
      decode_value<ServerAddresses>(store.get(ps_keys::place(0, 2), deadline_after(kLong)));
  for (int i = 0; i < 3; ++i) {
    INFO("connection " << i);
    try {
      const auto pipe = make_worker_pipe(
          connect_authenticated(Address::parse(addresses.remote), key, Purpose::parameters, 1, deadline_after(5s)),
          false, kDefaultLease, kOversubscribedPolicy, deadline_after(kLong));
      put_frame(*pipe, {.op = PsOp::follow});
      CHECK(next_status(*pipe) == 0);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
    }
  }
  server.stop();
  thread.join();
}

TEST_CASE("a snapshot whose worker has gone keeps no other from being made") {
  const testing::TemporaryFolder folder;
  const std::string fifo = folder / "shard-0-of-1.hvdps.unfinished";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  AttackedServer server(false);
  // More than a FIFO takes: its writer is at work until somebody reads.
  std::vector<std::uint64_t> keys(1000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = 100 + i;
  const std::vector<float> values(64'000, 1.0f);
  REQUIRE(server.worker->wait(server.worker->push(server.table, {.keys = keys, .gradients = values.data()}),
                              deadline_after(kLong)));
  auto pipe = server.connect_pipe();
  put_hello(*pipe);
  put_frame(
      *pipe,
      {.op = PsOp::snapshot, .incarnation = 1, .worker = 1, .bytes = static_cast<std::uint32_t>(folder.path().size())},
      std::as_bytes(std::span(folder.path())));
  {
    const FileDescriptor reader(open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
    pipe.reset();
    for (int i = 0; i < 20; ++i) CHECK(server.serves());
  }
  std::filesystem::remove(fifo);
  CHECK(server.worker->wait(server.worker->snapshot(folder.path()), deadline_after(20s)));
  CHECK(std::filesystem::exists(folder / "shard-0-of-1.hvdps"));
}

}  // namespace
}  // namespace hvd
