#include "launcher/remote/start_grpc.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <openssl/crypto.h>

#include <cstdlib>
#include <string>

#include "launcher/remote/agent.grpc.pb.h"

namespace hvd::launcher {
namespace {

// Overrides the variable while gRPC is initialized, which is when gRPC reads it. The ranks get the user's value.
class ForkSupportOff {
 public:
  ForkSupportOff() {
    if (const char* users = std::getenv(kName)) users_ = users;
    setenv(kName, "0", 1);
  }
  ~ForkSupportOff() {
    if (users_.empty()) {
      unsetenv(kName);
    } else {
      setenv(kName, users_.c_str(), 1);
    }
  }
  ForkSupportOff(const ForkSupportOff&) = delete;
  ForkSupportOff& operator=(const ForkSupportOff&) = delete;

 private:
  static constexpr const char* kName = "GRPC_ENABLE_FORK_SUPPORT";
  std::string users_;
};

// gRPC stops and joins its callback threads when the last server or channel that uses them is destroyed: a thread would
// join itself if that is the channel of a stream whose link is gone. A server without clients keeps the threads alive.
void keep_callback_threads() {
  static auto* const service = new proto::Parent::CallbackService;  // outlives the threads, as the server does
  grpc::ServerBuilder builder;
  builder.RegisterService(service);
  [[maybe_unused]] static const grpc::Server* const kept = builder.BuildAndStart().release();
}

bool start() {
  gpr_set_log_function([](gpr_log_func_args*) {});
  // openssl.cnf may load modules that are built for the system's OpenSSL and not for the one in hvdrun.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  const ForkSupportOff off;
  grpc_init();
  keep_callback_threads();
  return true;
}

}  // namespace

void start_grpc() { [[maybe_unused]] static const bool started = start(); }

}  // namespace hvd::launcher
