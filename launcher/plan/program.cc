#include "launcher/plan/program.h"

#include <unistd.h>

#include <filesystem>
#include <sstream>

namespace hvd::launcher {
namespace {

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool is_executable(const std::string& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

ProgramUnusable not_executable(const std::string& path) {
  const std::string hint = path.ends_with(".py") ? "; start it as: python " + path : "; chmod +x makes it so";
  return ProgramUnusable(126, path + " is not executable" + hint);
}

}  // namespace

std::string search_path_of(const Environment& environment) {
  if (const auto path = environment.find("PATH"); path != environment.end()) return path->second;
  std::string path(confstr(_CS_PATH, nullptr, 0), '\0');
  confstr(_CS_PATH, path.data(), path.size());
  return path.c_str();  // drops the terminating zero
}

std::string find_program(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos) {
    if (is_executable(name)) return name;
    std::error_code error;
    if (std::filesystem::is_directory(name, error)) throw ProgramUnusable(126, name + " is a directory");
    if (is_file(name)) throw not_executable(name);
    throw ProgramUnusable(127, "program not found: " + name);
  }
  std::string without_permission;
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(path)) return path;
    if (without_permission.empty() && is_file(path)) without_permission = path;
  }
  if (!without_permission.empty()) throw not_executable(without_permission);
  if (is_executable(name))
    throw ProgramUnusable(127, "program not found in PATH: " + name + "; is ./" + name + " meant?");
  if (is_file(name) && name.ends_with(".py")) {
    throw ProgramUnusable(127, "program not found in PATH: " + name + "; is python " + name + " meant?");
  }
  throw ProgramUnusable(127, "program not found in PATH: " + name);
}

std::string find_program_from(const std::string& folder, const std::string& name, const std::string& search_path) {
  if (folder.empty()) return find_program(name, search_path);
  const bool is_path = name.find('/') != std::string::npos;
  return std::filesystem::absolute(
             find_program(is_path ? (std::filesystem::path(folder) / name).string() : name, search_path))
      .string();
}

}  // namespace hvd::launcher
