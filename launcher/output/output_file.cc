#include "launcher/output/output_file.h"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

#include "core/base/error.h"

namespace hvd::launcher {

std::filesystem::path output_path(const std::filesystem::path& directory, int rank, int size,
                                  const std::string& stream) {
  const std::string number = std::to_string(rank);
  const std::size_t width = std::to_string(size - 1).size();
  return directory / ("rank." + std::string(width - number.size(), '0') + number) / stream;
}

OutputFile open_output_file(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw InvalidArgument("cannot create " + path.parent_path().string() + ": " + error.message());
  FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) throw InvalidArgument("cannot write " + path.string() + ": " + error_text(errno));
  return {.fd = std::move(fd), .path = path.string()};
}

}  // namespace hvd::launcher
