#include "launcher/remote/connect_to_parent.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/credentials.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/net/endpoint.h"
#include "launcher/remote/agent.grpc.pb.h"
#include "launcher/remote/rpc_stream.h"
#include "launcher/remote/start_grpc.h"
#include "launcher/remote/stream_link.h"

namespace hvd::launcher {
namespace {

using ClientReactor = grpc::ClientBidiReactor<proto::FromAgent, proto::ToAgent>;

class ClientStream : public RpcStream<ClientReactor, proto::FromAgent, proto::ToAgent> {
 public:
  static std::shared_ptr<ClientStream> start(const std::shared_ptr<grpc::Channel>& channel) {
    auto stream = std::make_shared<ClientStream>();
    proto::Parent::Stub(channel).async()->Attach(&stream->context_, stream.get());
    stream->AddHold();  // until conclude()
    stream->keep(stream);
    stream->StartCall();
    return stream;
  }

  std::string peer() const override { return context_.peer(); }

  // Waits for the parent's answer: OK, or the error. Empty if the deadline passes first.
  std::optional<grpc::Status> wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    answered_.wait_until(lock, deadline, [this] { return answer_.has_value(); });
    return answer_;
  }

  void give_up() {
    cancel();
    close();
  }

 private:
  void cancel() override { context_.TryCancel(); }
  void conclude() override {
    StartWritesDone();
    RemoveHold();
  }
  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) answer(grpc::Status::OK);
  }
  void OnDone(const grpc::Status& status) override {
    answer(status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "it has ended the connection") : status);
    end(status.ok() ? "it has ended the connection" : status.error_message());
  }

  // Only the first answer counts.
  void answer(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    if (!answer_) answer_ = status;
    answered_.notify_one();
  }

  grpc::ClientContext context_;
  std::mutex mutex_;
  std::condition_variable answered_;
  std::optional<grpc::Status> answer_;
};

// Names are resolved by the system's resolver and not by gRPC, which would only use DNS.
std::string target(const Address& parent) {
  std::string cause;
  std::string list;
  std::string family;
  for (const Endpoint& endpoint : resolve(parent, false, cause)) {
    const bool is_v6 = endpoint.storage.ss_family == AF_INET6;
    const std::string scheme = is_v6 ? "ipv6:" : "ipv4:";
    if (family.empty()) family = scheme;
    if (scheme != family) continue;  // a target has one family; the system sorts the better one first
    const std::string host = is_v6 ? "[" + endpoint.host() + "]" : endpoint.host();
    list += (list.empty() ? family : ",") + host + ":" + std::to_string(endpoint.port());
  }
  if (list.empty()) throw PeerLost("cannot find hvdrun's address " + parent.host + ": " + cause);
  return list;
}

std::shared_ptr<grpc::Channel> make_channel(const Certificate& certificate, const Address& parent) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = options.pem_cert_chain = certificate.certificate;
  options.pem_private_key = certificate.key;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kCertificateName);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   3'600'000);  // the timeout of one attempt; the caller has a deadline
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kLongestMessage));
  arguments.SetMaxSendMessageSize(static_cast<int>(kLongestMessage));
  return grpc::CreateCustomChannel(target(parent), grpc::SslCredentials(options), arguments);
}

}  // namespace

std::unique_ptr<LinkToParent> connect_to_parent(EventLoop& loop, const Certificate& certificate, const Address& parent,
                                                Deadline deadline) {
  start_grpc();
  const std::string where = parent.host + ":" + std::to_string(parent.port);
  const auto stream = ClientStream::start(make_channel(certificate, parent));
  const std::optional<grpc::Status> answer = stream->wait(deadline);
  if (!answer) {
    stream->give_up();
    throw Timeout("no answer from " + where + ", where this host's hvdrun was to connect to its parent");
  }
  if (!answer->ok()) {
    stream->close();
    throw PeerLost("cannot connect to hvdrun at " + where + ": " + answer->error_message());
  }
  return std::make_unique<StreamLink<ClientStream>>(loop, stream);
}

}  // namespace hvd::launcher
