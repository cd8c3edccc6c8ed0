#include "launcher/remote/link_lease.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

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
  lease.heard(kStart + 2s);
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

}  // namespace
}  // namespace hvd::launcher
