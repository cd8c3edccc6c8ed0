// The process that writes a snapshot: how it fails, and what it leaves behind.
#include "parameters/snapshot.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/socket.h"
#include "tests/parameters/shard_caller.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace hvd {
namespace {

class Folder : public testing::TemporaryFolder {
 public:
  std::string file() const { return *this / "shard-0-of-1.hvdps"; }
  std::string unfinished() const { return file() + ".unfinished"; }
};

// With rows of more than a megabyte each.
void fill_shard(Shard& shard, std::uint64_t rows) {
  ByteWriter hello, table;
  hello.put(PsHello::kProtocol);
  hello.put(std::uint32_t{1});
  apply_to(shard, {.op = PsOp::hello, .incarnation = 1}, hello.take());
  TableSpec spec;
  spec.name = "large";
  spec.width = kMaxWidth;
  spec.optimizer = {.rule = UpdateRule::adam};
  table.put(spec);
  apply_to(shard, {.op = PsOp::open_table, .incarnation = 1}, table.take());
  const std::vector<float> gradient(spec.width, 1.0f);
  for (std::uint64_t key = 0; key < rows; ++key) {
    apply_to(shard, {.op = PsOp::push, .sequence = key + 1, .incarnation = 1, .rows = 1},
             payload_of(std::span(&key, 1), gradient));
  }
}

// The exit code of a server's process, which does this.
int in_process(const std::function<int()>& body) {
  const pid_t process = fork();
  if (process == 0) {
    int code = 254;
    try {
      code = body();
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(process, &status, 0) == process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// An errno value; 253 if what was thrown was thrown in the process that writes, 252 if that was killed.
int outcome_of(const Shard& shard, const std::string& folder) {
  const pid_t server = getpid();
  try {
    SnapshotProcess process({&shard}, folder);
    std::optional<int> result;
    while (!(result = process.result())) std::this_thread::sleep_for(1ms);
    return *result == SnapshotProcess::kKilled ? 252 : *result;
  } catch (...) {
    if (getpid() != server) _exit(253);
    throw;
  }
}

TEST_CASE("a snapshot for which there is no room leaves nothing behind, and the earlier one stays") {
  const Folder folder;
  Shard shard(0, 1, 0);
  fill_shard(shard, 2);
  CHECK(outcome_of(shard, folder.path()) == 0);
  const auto size = std::filesystem::file_size(folder.file());
  CHECK(in_process([&] {
          signal(SIGXFSZ, SIG_IGN);
          const rlimit small{.rlim_cur = size / 2, .rlim_max = size / 2};
          setrlimit(RLIMIT_FSIZE, &small);
          return outcome_of(shard, folder.path());
        }) == EFBIG);
  CHECK(in_process([&] {
          signal(SIGCHLD, SIG_IGN);  // nobody has an exit code then
          const int failed = outcome_of(shard, "/sys/hvd-snapshot");
          return failed == 0 ? 251 : outcome_of(shard, folder.path());
        }) == 0);
  CHECK_FALSE(std::filesystem::exists(folder.unfinished()));
  CHECK(std::filesystem::file_size(folder.file()) == size);
}

TEST_CASE("a snapshot in a folder that cannot be made says why") {
  Shard shard(0, 1, 0);
  fill_shard(shard, 1);
  CHECK(outcome_of(shard, "/sys/hvd-snapshot") != ENOENT);
}

#if !defined(HVD_SANITIZED)
TEST_CASE("a process that writes a snapshot and gets no memory ends, and is no second server") {
  const Folder folder;
  Shard shard(0, 1, 0);
  fill_shard(shard, 1);
  CHECK(in_process([&] {
          std::size_t pages = 0;
          std::ifstream("/proc/self/statm") >> pages;
          const rlimit full{.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)), .rlim_max = RLIM_INFINITY};
          setrlimit(RLIMIT_AS, &full);
          while (std::malloc(std::size_t{256} << 10) != nullptr) continue;  // less than a row is left
          return outcome_of(shard, folder.path());
        }) == ENOMEM);
}
#endif

TEST_CASE("a snapshot ends with its server") {
  const Folder folder;
  REQUIRE(mkfifo(folder.unfinished().c_str(), 0600) == 0);  // its writer waits for a reader
  Shard shard(0, 1, 0);
  fill_shard(shard, 1);
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const pid_t server = fork();
  if (server == 0) {
    dup2(writer.get(), STDOUT_FILENO);  // held open as long as one of them lives
    const SnapshotProcess process({&shard}, folder.path());
    (void)!write(STDOUT_FILENO, "s", 1);
    while (true) pause();
  }
  writer.reset();
  char said = 0;
  CHECK(read(reader.get(), &said, 1) == 1);
  kill(server, SIGKILL);
  REQUIRE(waitpid(server, nullptr, 0) == server);
  CHECK(wait_ready(reader.get(), false, deadline_after(10s)));
  const FileDescriptor lets_it_go(open(folder.unfinished().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

}  // namespace
}  // namespace hvd
