#include "core/bootstrap/store_protocol.h"

#include "tests/support/catch.h"

using namespace hvd;

namespace {

const std::vector<StoreRequest> kRequests{
    {.id = 1, .operation = StoreOperation::set, .key = "key", .value = std::string("a\0b", 3)},
    {.id = 0xffffffff, .operation = StoreOperation::get, .key = ""},
    {.id = 3, .operation = StoreOperation::add, .key = "n", .amount = -9},
};

}  // namespace

TEST_CASE("store requests survive the wire, truncated ones do not") {
  for (const StoreRequest& request : kRequests) {
    Bytes message = encode_store_request(request);
    CHECK(parse_store_request(message) == request);
    for (std::size_t length = 0; length < message.size(); ++length) {
      CHECK_THROWS_AS(parse_store_request(std::span(message).first(length)), Internal);
    }
    message.push_back(std::byte{0});
    CHECK_THROWS_AS(parse_store_request(message), Internal);
  }
}

TEST_CASE("an unknown operation is refused") {
  for (const int operation : {0, 4, 255}) {
    Bytes message = encode_store_request({.id = 1, .operation = StoreOperation::get, .key = "key"});
    message[4] = std::byte(operation);
    CHECK_THROWS_AS(parse_store_request(message), Internal);
  }
}

TEST_CASE("store answers survive the wire, malformed ones do not") {
  const StoreAnswer answer{.id = 5, .code = StatusCode::timeout, .text = "why"};
  Bytes message = encode_store_answer(answer.id, answer.code, answer.text);
  CHECK(parse_store_answer(message) == answer);
  for (std::size_t length = 0; length < message.size(); ++length) {
    CHECK_THROWS_AS(parse_store_answer(std::span(message).first(length)), Internal);
  }
  message[4] = std::byte{200};
  CHECK_THROWS_AS(parse_store_answer(message), Internal);
}

TEST_CASE("the largest request fits into a store's frame") {
  const StoreRequest largest{.operation = StoreOperation::set,
                             .key = std::string(kMaxStoreKeyBytes, 'k'),
                             .value = std::string(kMaxStoreValueBytes, 'v')};
  CHECK(encode_store_request(largest).size() <= kMaxStoreFrameBytes);
  CHECK(kMaxStoreFrameBytes <= kMaxFrameBytes);
}
