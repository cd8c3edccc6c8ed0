#include "launcher/processes/keeper_lease.h"

#include "tests/launcher/start_time.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("without a lease no silence is too long") {
  KeeperLease lease;
  CHECK_FALSE(lease.deadline());
  lease.renew(kStart);
  CHECK_FALSE(lease.has_expired(kStart + 1h));
  lease.set(100ms, kStart);
  CHECK(lease.deadline());
  lease.set(Duration::zero(), kStart);
  CHECK_FALSE(lease.deadline());
}

TEST_CASE("a lease begins anew whenever it is renewed") {
  KeeperLease lease;
  lease.set(100ms, kStart);
  CHECK(lease.deadline() == kStart + 100ms);
  CHECK_FALSE(lease.has_expired(kStart + 99ms));
  lease.renew(kStart + 80ms);
  CHECK_FALSE(lease.has_expired(kStart + 179ms));
  CHECK(lease.deadline() == kStart + 180ms);
  CHECK(lease.has_expired(kStart + 180ms));
}

TEST_CASE("a keeper that was held up itself does not judge") {
  KeeperLease lease;
  lease.set(100ms, kStart);
  CHECK_FALSE(lease.has_expired(kStart + 10s));
  CHECK(lease.deadline() == kStart + 10s + 100ms);
  CHECK(lease.has_expired(kStart + 10s + 110ms));
}

}  // namespace
}  // namespace hvd::launcher
