#include "core/bootstrap/store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "core/base/error.h"
#include "core/base/process.h"

namespace hvd {

StoreServer::StoreServer(const JobKey& key, const std::string& bind_host, const Log& log, std::uint16_t port)
    : log_(log),
      sessions_(std::make_unique<StoreSessions>(key, bind_host, origin_, log, port)),
      address_(sessions_->address()),
      stop_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_event_) throw Internal("cannot open the store's event descriptors");
  thread_ = start_thread("hvd-store", [this] { run(); });
}

StoreServer::~StoreServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stop_event_.get(), &one, sizeof one);
  thread_.join();
}

void StoreServer::run() {
  pollfd ready[] = {{.fd = stop_event_.get(), .events = POLLIN, .revents = 0},
                    {.fd = sessions_->fd(), .events = POLLIN, .revents = 0}};
  try {
    for (;;) {
      if (poll(ready, std::size(ready), -1) < 0 && errno != EINTR) throw Internal("poll in the job's store");
      if (ready[0].revents != 0) return;
      sessions_->serve_now();
    }
  } catch (...) {
    log_.error("the job's store stops: " + current_exception_status().message());
    sessions_.reset();
  }
}

}  // namespace hvd
