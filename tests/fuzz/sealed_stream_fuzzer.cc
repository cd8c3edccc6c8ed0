// SealedStream against any bytes behind a greeting: only what is sealed with the right key comes out, in order.
#include <algorithm>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/net/sealed_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const hvd::JobKey key = hvd::JobKey::from_hex(std::string(64, 'a'));
  hvd::SealedStream client(key, hvd::SealedStream::End::client, 1000),
      server(key, hvd::SealedStream::End::server, 1000);
  auto bytes = std::as_bytes(std::span(data, size));
  const bool greets = size > 0 && data[0] % 4 != 0;
  client.feed(server.greeting());
  client.next();
  try {
    if (greets) {
      server.feed(client.greeting());
      server.feed(client.seal(bytes.first(std::min<std::size_t>(size, 100))));
      if (server.next()->size() != std::min<std::size_t>(size, 100)) __builtin_trap();
    }
    server.feed(bytes);
    while (server.next()) __builtin_trap();
  } catch (const hvd::PeerLost&) {
  }
  return 0;
}
