// Captures what the process writes to standard error during its lifetime, for tests of the log.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace hvd {

class CapturedStderr {
 public:
  CapturedStderr() : original_(dup(STDERR_FILENO)), file_(memfd_create("stderr", MFD_CLOEXEC)) {
    dup2(file_, STDERR_FILENO);
  }
  ~CapturedStderr() {
    dup2(original_, STDERR_FILENO);
    close(original_);
    close(file_);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;

  std::string text() const {
    std::string all(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
    const ssize_t count = pread(file_, all.data(), all.size(), 0);
    all.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return all;
  }
  // How often a piece of text was written.
  int count(const std::string& piece) const {
    const std::string all = text();
    int found = 0;
    for (std::size_t at = all.find(piece); at != std::string::npos; at = all.find(piece, at + 1)) ++found;
    return found;
  }

 private:
  int original_;
  int file_;
};

}  // namespace hvd
