// The files that --output-filename writes: DIR/rank.<N>/stdout and stderr, with N padded with zeros to the width of the
// largest, like horovodrun.
#pragma once

#include <filesystem>
#include <string>

#include "core/net/socket.h"

namespace hvd::launcher {

struct OutputFile {
  FileDescriptor fd;
  std::string path;
};

// Pure.
std::filesystem::path output_path(const std::filesystem::path& directory, int rank, int size,
                                  const std::string& stream);

// Creates the folders, and creates or truncates the file. Throws Error that names the path.
OutputFile open_output_file(const std::filesystem::path& path);

}  // namespace hvd::launcher
