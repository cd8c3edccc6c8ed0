#include "launcher/remote/grpc_link.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/net/endpoint.h"
#include "launcher/remote/agent.grpc.pb.h"
#include "launcher/remote/rpc_stream.h"

namespace hvd::launcher {
namespace {

template <auto kFree>
struct Free {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using X509Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Memory = std::unique_ptr<BIO, Free<BIO_free_all>>;

constexpr long kDay = 24L * 60 * 60;
constexpr int kDaysValid = 36500;

void require(bool success, const char* what) {
  if (success) return;
  std::array<char, 256> cause{};
  ERR_error_string_n(ERR_get_error(), cause.data(), cause.size());
  throw Internal("cannot make the job's certificate: " + std::string(what) + ": " + cause.data());
}

void add_extension(X509* certificate, int nid, const std::string& value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str()));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, value.c_str());
}

// Valid from a day ago, because the hosts' clocks may differ.
X509Certificate make_x509(EVP_PKEY* key) {
  X509Certificate certificate(X509_new());
  require(certificate != nullptr, "memory");
  X509* x509 = certificate.get();
  require(X509_set_version(x509, X509_VERSION_3) == 1, "version");
  std::uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "random bytes");
  require(ASN1_INTEGER_set_uint64(X509_get_serialNumber(x509), serial) == 1, "serial number");
  X509_NAME* name = X509_get_subject_name(x509);
  const auto* text = reinterpret_cast<const unsigned char*>(kCertificateName);
  require(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1, "name");
  require(X509_set_issuer_name(x509, name) == 1, "issuer");
  require(X509_gmtime_adj(X509_getm_notBefore(x509), -kDay) != nullptr, "time");
  require(X509_time_adj_ex(X509_getm_notAfter(x509), kDaysValid, 0, nullptr) != nullptr, "time");
  require(X509_set_pubkey(x509, key) == 1, "public key");
  add_extension(x509, NID_basic_constraints, "critical,CA:FALSE");  // must not sign other certificates
  add_extension(x509, NID_subject_alt_name, std::string("DNS:") + kCertificateName);
  require(X509_sign(x509, key, EVP_sha256()) > 0, "signature");
  return certificate;
}

std::string text_of(BIO* memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory, &bytes);
  require(size > 0, "PEM");
  return {bytes, static_cast<std::size_t>(size)};
}

// Initializes OpenSSL before its first use. gRPC's threads may still close a connection while the process exits, so
// OpenSSL must not free its state then. openssl.cnf may load modules that are built for the system's OpenSSL and not
// for the one in hvdrun.
void start_openssl() {
  static const bool started = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1;
  require(started, "OpenSSL");
}

// gRPC stops and joins its callback threads when the last server or channel that uses them is destroyed: a thread would
// join itself if that is the channel of a stream whose link is gone. A server without clients keeps the threads alive.
void keep_callback_threads() {
  static auto* const service = new proto::Parent::CallbackService;  // outlives the threads, as the server does
  grpc::ServerBuilder builder;
  builder.RegisterService(service);
  [[maybe_unused]] static const grpc::Server* const kept = builder.BuildAndStart().release();
}

bool initialize_grpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
  start_openssl();
  // gRPC reads the variable when it is initialized. The ranks get the user's value.
  constexpr const char* kForkSupport = "GRPC_ENABLE_FORK_SUPPORT";
  const char* const value = std::getenv(kForkSupport);
  const std::string users = value != nullptr ? value : "";
  setenv(kForkSupport, "0", 1);
  grpc_init();
  keep_callback_threads();
  if (users.empty()) {
    unsetenv(kForkSupport);
  } else {
    setenv(kForkSupport, users.c_str(), 1);
  }
  return true;
}

// Initializes gRPC before the first server or channel, which must not run concurrently with a thread that reads the
// environment. Turns off gRPC's logging, because standard error belongs to the user, and its fork handlers, whatever
// the user's environment sets for gRPC in the ranks.
void start_grpc() { [[maybe_unused]] static const bool started = initialize_grpc(); }

constexpr Duration kTry = 1s;
constexpr const char* kClosedByParent = "the parent closed the connection";
constexpr int kHandshakeTimeoutMs = 5000;  // a silent, unauthenticated peer holds a descriptor for so long

constexpr auto kMaxShutdown = std::chrono::seconds(1);

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
  void OnDone() override {
    end(context_->IsCancelled() ? "the connection broke off" : "its agent closed the connection");
  }

  grpc::CallbackServerContext* const context_;  // until OnDone()
  const std::string peer_;
};

std::shared_ptr<grpc::ServerCredentials> credentials(const Certificate& certificate) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = certificate.certificate;
  options.pem_key_cert_pairs.push_back({certificate.key, certificate.certificate});
  return grpc::SslServerCredentials(options);
}

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
    const MutexLock lock(mutex_);
    answered_.wait_until(mutex_, deadline, [this]() REQUIRES(mutex_) { return answer_.has_value(); });
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
    answer(status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, kClosedByParent) : status);
    end(status.ok() ? kClosedByParent : status.error_message());
  }

  // Only the first answer counts.
  void answer(const grpc::Status& status) {
    const MutexLock lock(mutex_);
    if (!answer_) answer_ = status;
    answered_.notify_one();
  }

  grpc::ClientContext context_;
  Mutex mutex_;
  CondVar answered_;
  std::optional<grpc::Status> answer_ GUARDED_BY(mutex_);
};

// Names are resolved by the system's resolver and not by gRPC, which would only use DNS.
std::string target(const Address& parent) {
  std::string cause;
  std::string list;
  std::string family;
  for (const Endpoint& endpoint : resolve(parent, false, cause)) {
    const std::string scheme = endpoint.storage.ss_family == AF_INET6 ? "ipv6:" : "ipv4:";
    if (family.empty()) family = scheme;
    if (scheme != family) continue;  // a target has one family; the system sorts the better one first
    list += (list.empty() ? family : ",") + bracketed(endpoint.host()) + ":" + std::to_string(endpoint.port());
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
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessage));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxMessage));
  return grpc::CreateCustomChannel(target(parent), grpc::SslCredentials(options), arguments);
}

}  // namespace

Certificate make_certificate() {
  start_openssl();
  const Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "key");
  const X509Certificate certificate = make_x509(key.get());
  const Memory certificate_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_secmem()));
  require(certificate_text && key_text, "memory");
  require(PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1, "PEM");
  require(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1, "PEM");
  return {.certificate = text_of(certificate_text.get()), .key = text_of(key_text.get())};
}

class AgentListener::Service : public proto::Parent::CallbackService {
 public:
  Service(EventLoop& loop, Attached attached) : loop_(loop), attached_(std::move(attached)) {
    loop_.watch(arrivals_.fd(), EPOLLIN, [this] { greet(); });
  }
  ~Service() override {
    loop_.forget(arrivals_.fd());
    for (const auto& stream : arrivals_.take()) stream->close();
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + kMaxShutdown);
  }

  std::uint16_t serve(const Certificate& certificate, const std::string& bind_host) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(bracketed(bind_host) + ":0", credentials(certificate), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessage));
    builder.SetMaxSendMessageSize(static_cast<int>(kMaxMessage));
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

std::uint16_t AgentListener::port() const { return port_; }

ParentAddress find_parent(const std::vector<Address>& addresses, Deadline deadline) {
  while (true) {
    std::string failures;
    for (const Address& address : addresses) {
      try {
        const Socket probe = Socket::connect(address, std::min(deadline, deadline_after(kTry)));
        return {.parent = address, .local_address = probe.local_host()};
      } catch (const Error& error) {
        failures += (failures.empty() ? "" : "; ") + std::string(error.what());
      }
    }
    if (Clock::now() >= deadline) throw Timeout("cannot reach hvdrun: " + failures);
  }
}

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
