// Headers of requests and answers: what is written is read, and what no peer writes is refused.
#include "parameters/message.h"

#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/support/catch.h"

namespace hvd {
namespace {

template <typename Header>
std::array<std::byte, kPsHeaderBytes> header_bytes(const Header& header) {
  std::array<std::byte, kPsHeaderBytes> bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST_CASE("a request's header is read as it was written, or refused") {
  const PsRequest good{.op = PsOp::push,
                       .table = 3,
                       .sequence = 4,
                       .incarnation = 5,
                       .worker = 6,
                       .clock = 7,
                       .shard = 8,
                       .rows = kMaxPsRows,
                       .bytes = kMaxPsPayload};
  CHECK(parse_request(header_bytes(good)) == good);
  for (int op = 1; op <= kPsOps; ++op) {
    PsRequest request = good;
    request.op = static_cast<PsOp>(op);
    CHECK(parse_request(header_bytes(request)) == request);
  }
  for (const std::function<void(PsRequest&)>& spoil : std::vector<std::function<void(PsRequest&)>>{
           [](PsRequest& r) { r.magic = PsAnswer::kMagic; }, [](PsRequest& r) { r.op = PsOp{0}; },
           [](PsRequest& r) { r.op = static_cast<PsOp>(kPsOps + 1); }, [](PsRequest& r) { r.op = PsOp{255}; },
           [](PsRequest& r) { r.flags = 1; }, [](PsRequest& r) { r.rows = kMaxPsRows + 1; },
           [](PsRequest& r) { r.bytes = kMaxPsPayload + 1; }, [](PsRequest& r) { r.bytes = 0xffffffff; },
           [](PsRequest& r) { r.reserved = 1; }}) {
    PsRequest bad = good;
    spoil(bad);
    CHECK_THROWS_AS(parse_request(header_bytes(bad)), Internal);
  }
}

TEST_CASE("an answer's header is read as it was written, or refused") {
  const PsAnswer good{.status = static_cast<std::uint32_t>(StatusCode::internal),
                      .sequence = 2,
                      .version = 3,
                      .min_clock = 4,
                      .rows = kMaxPsRows,
                      .bytes = kMaxPsPayload,
                      .applied = 5};
  CHECK(parse_answer(header_bytes(good)) == good);
  for (const std::function<void(PsAnswer&)>& spoil : std::vector<std::function<void(PsAnswer&)>>{
           [](PsAnswer& a) { a.magic = PsRequest::kMagic; },
           [](PsAnswer& a) { a.status = static_cast<std::uint32_t>(StatusCode::internal) + 1; },
           [](PsAnswer& a) { a.rows = kMaxPsRows + 1; }, [](PsAnswer& a) { a.bytes = kMaxPsPayload + 1; },
           [](PsAnswer& a) { a.reserved = 1; }}) {
    PsAnswer bad = good;
    spoil(bad);
    CHECK_THROWS_AS(parse_answer(header_bytes(bad)), Internal);
  }
}

TEST_CASE("frames keep the alignment of payloads, and fit into a pipe") {
  for (std::size_t payload = 0; payload < 20; ++payload) {
    CHECK(ps_frame_bytes(payload) % 8 == 0);
    CHECK(ps_frame_bytes(payload) >= kPsHeaderBytes + payload);
    CHECK(ps_frame_bytes(payload) < kPsHeaderBytes + payload + 8);
  }
}

}  // namespace
}  // namespace hvd
