// That a locked schedule sends no control message, not by our own count (schedule_lock_test.cc), but by the kernel's of
// what left each connection, and by the memory through which the ranks of a host send each other messages.
#include <fcntl.h>
#include <linux/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "core/control/tree/control_region.h"
#include "core/net/socket.h"
#include "tests/support/catch.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

namespace {

constexpr int kProtocolTcp = 6;  // <netinet/in.h> does not go with <linux/tcp.h> everywhere

// Bytes that have left each TCP connection of this process, by descriptor.
using Sent = std::map<int, std::uint64_t>;

Sent sent_so_far() {
  Sent sent;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    tcp_info info{};
    socklen_t size = sizeof info;
    const bool is_tcp = getsockopt(descriptor, kProtocolTcp, TCP_INFO, &info, &size) == 0;
    if (is_tcp && size >= offsetof(tcp_info, tcpi_bytes_sent) + sizeof info.tcpi_bytes_sent) {
      sent[descriptor] = info.tcpi_bytes_sent;
    }
  }
  return sent;
}

// As the kernel reads it for us: ranks change it with no regard for this thread.
std::vector<std::byte> copy_of_memory(std::uintptr_t address, std::size_t size) {
  std::vector<std::byte> copy(size);
  const FileDescriptor memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  const ssize_t count = pread(memory.get(), copy.data(), size, static_cast<off_t>(address));
  require(count == static_cast<ssize_t>(size), "this process's memory cannot be read");
  return copy;
}

// What the ranks of hosts have in their control windows but for the doorbells, which ranks also ring for themselves.
// Found by its size: there is nothing else of that size in this process.
std::vector<std::byte> all_rings(int local_size) {
  constexpr std::size_t kPage = 4096;
  const std::size_t size = (ControlRegion::bytes_for(local_size) + kPage - 1) / kPage * kPage;
  std::vector<std::byte> content;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (line.find("memfd:") == std::string::npos || end - begin != size) continue;
    for (int rank = 0; rank < local_size; ++rank) {
      const std::size_t from = offsetof(ControlRegion::PerRank, break_requested);
      const std::vector<std::byte> rings =
          copy_of_memory(begin + ControlRegion::bytes_for(rank) + from, sizeof(ControlRegion::PerRank) - from);
      content.insert(content.end(), rings.begin(), rings.end());
    }
  }
  return content;
}

struct Seen {
  Sent sent;
  std::vector<std::byte> rings;
};

std::vector<int> grown(const Sent& before, const Sent& after) {
  std::vector<int> descriptors;
  for (const auto& [descriptor, bytes] : after) {
    const auto earlier = before.find(descriptor);
    if (earlier != before.end() && bytes > earlier->second) descriptors.push_back(descriptor);
  }
  return descriptors;
}

void run_steps(Runtime& runtime, int steps) {
  std::vector<std::vector<float>> tensors(5, std::vector<float>(1000, 1));
  for (int step = 0; step < steps; ++step) {
    std::vector<CallerReference> handles;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      CallArguments call{.name = "tensor." + std::to_string(i), .op = ReduceOp::max};
      call.inputs = call.outputs = {{.data = tensors[i].data(), .shape = {1000}}};
      handles.push_back(runtime.submit(call));
    }
    for (CallerReference& handle : handles) require(handle->wait(deadline_after(60s)), "a tensor is not done");
  }
}

}  // namespace

TEST_CASE("in a locked schedule control links and rings stand still, as the kernel and the memory have it") {
  const auto hosts = GENERATE(std::vector<int>{3}, std::vector<int>{1, 1, 1}, std::vector<int>{2, 2});
  const bool locks = GENERATE(true, false);
  CAPTURE(hosts, locks);
  const RunOptions options{Layout{hosts}, {{"HVD_SCHEDULE_LOCK", locks ? "1" : "0"}}};
  std::barrier<> rendezvous(options.layout.size());
  Seen first, negotiated, before, after;
  const auto look = [&](const Runtime& runtime, Seen& seen) {
    rendezvous.arrive_and_wait();  // nobody does anything
    if (runtime.topology().rank == 0) seen = {sent_so_far(), all_rings(hosts.front())};
    rendezvous.arrive_and_wait();
  };
  REQUIRE_NOTHROW(run_ranks(options, [&](Runtime& runtime) {
    look(runtime, first);
    perform(runtime, {.collective = Collective::barrier, .name = "negotiated, and no more"});
    look(runtime, negotiated);
    run_steps(runtime, 100);
    look(runtime, before);
    const std::uint64_t messages = runtime.metrics().control_messages.value();
    run_steps(runtime, 200);
    look(runtime, after);
    require((runtime.metrics().control_messages.value() == messages) == locks, "its own count is another one");
  }));

  const std::vector<int> control_links = grown(first.sent, negotiated.sent);
  const std::vector<int> busy_links = grown(before.sent, after.sent);
  CHECK(control_links.empty() == (hosts.size() == 1));
  CHECK(busy_links.empty() == (hosts.size() == 1));
  for (const int link : control_links) {
    INFO("connection " << link);
    CHECK((before.sent.at(link) == after.sent.at(link)) == locks);
  }
  CHECK(first.rings.empty() == (hosts.front() == 1));
  if (hosts.front() == 1) return;
  CHECK(first.rings != negotiated.rings);
  CHECK((before.rings == after.rings) == locks);
}

}  // namespace hvd::testing
