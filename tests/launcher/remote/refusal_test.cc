// Who does not belong to a job gets into no connection with it, as an agent or as a parent.
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/credentials.h>

#include <span>

#include "core/base/error.h"
#include "launcher/remote/agent.grpc.pb.h"
#include "tests/launcher/remote/link_fixture.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

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

  Socket silent = Socket::connect(job.address(), deadline_after(20s));
  Socket rude = Socket::connect(job.address(), deadline_after(20s));
  const std::string garbage(100'000, '\x16');
  try {
    rude.send_all(std::as_bytes(std::span(garbage)), deadline_after(20s), "hvdrun");
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

TEST_CASE("a parent that does not answer is a timeout") {
  const Listener silent = Listener::tcp("127.0.0.1");  // the kernel takes connections up, and nobody reads
  EventLoop loop;
  const TimePoint start = Clock::now();
  CHECK_THROWS_AS(connect_to_parent(loop, make_certificate(), silent.address(), start + 500ms), Timeout);
  CHECK(Clock::now() - start >= 500ms);
  CHECK(Clock::now() - start < 5s);
}

}  // namespace hvd::launcher
