// Both ends of the link between agents and their parent, in one process with one event loop, over loopback. Who does
// not belong to the job gets into no connection with it.
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/credentials.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "launcher/remote/agent.grpc.pb.h"
#include "launcher/remote/grpc_link.h"
#include "launcher/remote/link.h"
#include "launcher/remote/rpc_stream.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/timeouts.h"

namespace hvd::launcher {
namespace {

template <typename OneLink, typename Incoming>
struct End {
  std::unique_ptr<OneLink> link;
  std::vector<Incoming> received;
  std::vector<std::string> lost;

  void listen() {
    link->listen({.received = [this](const Incoming& message) { received.push_back(message); },
                  .lost = [this](const std::string& cause) { lost.push_back(cause); }});
  }
};
using AgentEnd = End<LinkToParent, proto::ToAgent>;
using ParentEnd = End<LinkToAgent, proto::FromAgent>;

struct LinkFixture {
  EventLoop loop;
  Certificate certificate = make_certificate();
  std::vector<std::unique_ptr<ParentEnd>> parents;  // one of each agent
  std::unique_ptr<AgentListener> listener =
      std::make_unique<AgentListener>(loop, certificate, "127.0.0.1", [this](std::unique_ptr<LinkToAgent> link) {
        parents.push_back(std::make_unique<ParentEnd>());
        parents.back()->link = std::move(link);
        parents.back()->listen();
      });

  Address address() const { return {.host = "127.0.0.1", .port = listener->port()}; }

  // Whether it has come true in time.
  template <typename Condition>
  bool run_until(Condition condition, Duration limit = 120s) {
    const Deadline deadline = deadline_after(limit);
    while (!condition()) {
      if (Clock::now() >= deadline) return false;
      loop.run_once(std::min(deadline, deadline_after(10ms)));  // no event tells that all is sent
    }
    return true;
  }

  // With a link at both ends.
  std::unique_ptr<AgentEnd> attach() {
    auto agent = std::make_unique<AgentEnd>();
    const std::size_t before = parents.size();
    agent->link = connect_to_parent(loop, certificate, address(), deadline_after(120s));
    agent->listen();
    run_until([&] { return parents.size() > before; });
    return agent;
  }
};

// Numbered, so that order can be told.
proto::FromAgent started(int number) {
  proto::FromAgent message;
  message.mutable_rank_started()->set_pid(number);
  return message;
}

proto::ToAgent signal_number(int number) {
  proto::ToAgent message;
  message.mutable_signal()->set_signal(number);
  return message;
}

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
  lease.received(kStart + 2s);
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

std::shared_ptr<grpc::ChannelCredentials> tls(const std::string& roots, const Certificate& own) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = roots;
  options.pem_cert_chain = own.certificate;
  options.pem_private_key = own.key;
  return grpc::SslCredentials(options);
}

// What a impostor that speaks gRPC gets told.
grpc::Status attach_unauthenticated(const Address& address,
                                    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kCertificateName);
  const auto channel =
      grpc::CreateCustomChannel("ipv4:127.0.0.1:" + std::to_string(address.port), credentials, arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto stream = proto::Parent::NewStub(channel)->Attach(&context);
  stream->Write(started(1));
  proto::ToAgent answer;
  stream->Read(&answer);
  return stream->Finish();
}

std::string failure_to_connect(const Certificate& certificate, const Address& address, Duration limit) {
  EventLoop loop;
  try {
    connect_to_parent(loop, certificate, address, deadline_after(limit));
  } catch (const PeerLost& error) {
    return error.what();
  }
  return "connected";
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
    CHECK(parent.lost == std::vector<std::string>{"its agent closed the connection"});
  } else {
    parent.link.reset();
    CHECK(job.run_until([&] { return !agent->lost.empty(); }));
    CHECK(agent->received.size() == 1000);
    CHECK(agent->lost == std::vector<std::string>{"the parent closed the connection"});
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
  auto link = connect_to_parent(job.loop, job.certificate, job.address(), deadline_after(120s));
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
  const std::string bytes(kMaxMessage + 1, 'x');
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

TEST_CASE("strangers are refused without a word, and agents are taken up") {
  const CapturedStderr errors;
  LinkFixture job;
  const Certificate other = make_certificate();
  CHECK(failure_to_connect(other, job.address(), 20s).find("cannot connect to hvdrun at 127.0.0.1:") == 0);

  using grpc::StatusCode;
  const std::string& root = job.certificate.certificate;
  CHECK(attach_unauthenticated(job.address(), tls(root, other)).error_code() == StatusCode::UNAVAILABLE);
  CHECK(attach_unauthenticated(job.address(), tls(root, {})).error_code() == StatusCode::UNAVAILABLE);
  const auto plain = grpc::InsecureChannelCredentials();
  CHECK(attach_unauthenticated(job.address(), plain).error_code() == StatusCode::UNAVAILABLE);

  Socket silent = Socket::connect(job.address(), deadline_after(120s));
  Socket rude = Socket::connect(job.address(), deadline_after(120s));
  const std::string garbage(100'000, '\x16');
  try {
    rude.send_all(std::as_bytes(std::span(garbage)), deadline_after(120s), "hvdrun");
  } catch (const PeerLost&) {
  }

  CHECK(job.parents.empty());
  const auto agent = job.attach();
  REQUIRE(job.parents.size() == 1);
  agent->link->send(started(1));
  CHECK(job.run_until([&] { return !job.parents[0]->received.empty(); }));
  CHECK(errors.text().empty());
}

TEST_CASE("an agent refuses a parent of another job") {
  LinkFixture other;
  CHECK(failure_to_connect(make_certificate(), other.address(), 20s).find("erti") != std::string::npos);
}

TEST_CASE("nobody listens") {
  Address address;
  {
    const Listener listener = Listener::tcp("127.0.0.1");
    address = listener.address();
  }
  const TimePoint start = Clock::now();
  const std::string failure = failure_to_connect(make_certificate(), address, 20s);
  CHECK(failure.find("127.0.0.1:" + std::to_string(address.port)) != std::string::npos);
  CHECK(failure.find("refused") != std::string::npos);
  CHECK(Clock::now() - start < 10s);
}

TEST_CASE("an unknown name") {
  const std::string failure = failure_to_connect(make_certificate(), {.host = "no-such-host.invalid", .port = 1}, 20s);
  CHECK(failure.find("no-such-host.invalid") != std::string::npos);
}

TEST_CASE("a parent that does not answer is a timeout", "[timed]") {
  const Listener silent = Listener::tcp("127.0.0.1");  // the kernel takes connections up, and nobody reads
  EventLoop loop;
  const TimePoint start = Clock::now();
  CHECK_THROWS_AS(connect_to_parent(loop, make_certificate(), silent.address(), start + 500ms), Timeout);
  CHECK(Clock::now() - start >= 500ms);
  CHECK(Clock::now() - start < testing::at_most(5s));
}

TEST_CASE("a certificate is of today, has the job's name, and fits its key") {
  const Certificate made = make_certificate();
  BIO* text = BIO_new_mem_buf(made.certificate.data(), static_cast<int>(made.certificate.size()));
  X509* certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
  BIO_free(text);
  REQUIRE(certificate != nullptr);
  CHECK(X509_check_host(certificate, kCertificateName, 0, 0, nullptr) == 1);
  CHECK(X509_check_host(certificate, "localhost", 0, 0, nullptr) == 0);
  CHECK(X509_check_ca(certificate) == 0);
  std::time_t earlier = std::time(nullptr) - 60 * 60, later = std::time(nullptr) + 10 * 365 * 24 * 60 * 60L;
  CHECK(X509_cmp_time(X509_get0_notBefore(certificate), &earlier) < 0);
  CHECK(X509_cmp_time(X509_get0_notAfter(certificate), &later) > 0);

  text = BIO_new_mem_buf(made.key.data(), static_cast<int>(made.key.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(text, nullptr, nullptr, nullptr);
  BIO_free(text);
  REQUIRE(key != nullptr);
  CHECK(X509_check_private_key(certificate, key) == 1);
  CHECK(X509_verify(certificate, key) == 1);
  EVP_PKEY_free(key);
  X509_free(certificate);
}

// gRPC's threads may be closing a connection while the process exits.
TEST_CASE("OpenSSL is usable until the process has ended") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::atexit([] { _exit(make_certificate().key.empty() ? EXIT_FAILURE : EXIT_SUCCESS); });
    make_certificate();  // what it registers to be called at exit is called before the function above
    std::exit(EXIT_FAILURE);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("no two certificates are alike") {
  const Certificate one = make_certificate(), other = make_certificate();
  CHECK(one.certificate != other.certificate);
  CHECK(one.key != other.key);
}

}  // namespace hvd::launcher
