#include "launcher/remote/agent_listener.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/server_credentials.h>

#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "launcher/remote/agent.grpc.pb.h"
#include "launcher/remote/rpc_stream.h"
#include "launcher/remote/start_grpc.h"
#include "launcher/remote/stream_link.h"

namespace hvd::launcher {
namespace {

constexpr int kHandshakeTimeoutMs = 5000;  // a silent, unauthenticated peer holds a descriptor for so long

constexpr auto kLongestShutdown = std::chrono::seconds(1);

using ServerReactor = grpc::ServerBidiReactor<proto::FromAgent, proto::ToAgent>;

class ServerStream : public RpcStream<ServerReactor, proto::ToAgent, proto::FromAgent> {
 public:
  static std::shared_ptr<ServerStream> start(grpc::CallbackServerContext* context) {
    auto stream = std::make_shared<ServerStream>(context);
    stream->StartSendInitialMetadata();  // confirms to the agent that it is attached
    stream->keep(stream);
    return stream;
  }
  // Call start().
  explicit ServerStream(grpc::CallbackServerContext* context) : context_(context), peer_(context->peer()) {}

  std::string peer() const override { return peer_; }

 private:
  void cancel() override { context_->TryCancel(); }
  void conclude() override { Finish(grpc::Status::OK); }
  void OnDone() override { end(context_->IsCancelled() ? "the connection broke off" : "it has ended the connection"); }

  grpc::CallbackServerContext* const context_;  // until OnDone()
  const std::string peer_;
};

std::shared_ptr<grpc::ServerCredentials> credentials(const Certificate& certificate) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = certificate.certificate;
  options.pem_key_cert_pairs.push_back({certificate.key, certificate.certificate});
  return grpc::SslServerCredentials(options);
}

std::string with_port(const std::string& host) {
  return host.find(':') == std::string::npos ? host + ":0" : "[" + host + "]:0";
}

}  // namespace

class AgentListener::Service : public proto::Parent::CallbackService {
 public:
  Service(EventLoop& loop, Attached attached) : loop_(loop), attached_(std::move(attached)) {
    loop_.watch(arrivals_.fd(), EPOLLIN, [this] { greet(); });
  }
  ~Service() override {
    loop_.forget(arrivals_.fd());
    for (const auto& stream : arrivals_.take()) stream->close();
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + kLongestShutdown);
  }

  std::uint16_t serve(const Certificate& certificate, const std::string& bind_host) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(with_port(bind_host), credentials(certificate), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
    builder.SetMaxReceiveMessageSize(static_cast<int>(kLongestMessage));
    builder.SetMaxSendMessageSize(static_cast<int>(kLongestMessage));
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (!server_ || port <= 0) throw Internal("cannot listen for agents on " + bind_host);
    return static_cast<std::uint16_t>(port);
  }

 private:
  // On a gRPC thread. Without a stream, the agent is refused.
  ServerReactor* Attach(grpc::CallbackServerContext* context) override {
    try {
      const std::shared_ptr<ServerStream> stream = ServerStream::start(context);
      arrivals_.put(stream);
      return stream.get();
    } catch (const std::exception&) {  // out of descriptors or memory
      return nullptr;
    }
  }

  void greet() {
    for (auto& stream : arrivals_.take()) {
      attached_(std::make_unique<StreamLink<ServerStream>>(loop_, std::move(stream)));
    }
  }

  EventLoop& loop_;
  const Attached attached_;
  Inbox<std::shared_ptr<ServerStream>> arrivals_;
  std::unique_ptr<grpc::Server> server_;
};

AgentListener::AgentListener(EventLoop& loop, const Certificate& certificate, const std::string& bind_host,
                             Attached attached) {
  start_grpc();
  service_ = std::make_unique<Service>(loop, std::move(attached));
  port_ = service_->serve(certificate, bind_host);
}

AgentListener::~AgentListener() = default;

}  // namespace hvd::launcher
