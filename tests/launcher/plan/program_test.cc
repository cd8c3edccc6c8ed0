#include "launcher/plan/program.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hvd_program_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string add(const std::string& name, mode_t mode) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << "#!/bin/sh\n";
    chmod((path_ / name).c_str(), mode);
    return path_ / name;
  }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

TEST_CASE("programs are found as shells find them") {
  const Folder folder;
  const std::string plain = folder.add("a/tool", 0644);
  const std::string good = folder.add("b/tool", 0755);
  folder.add("c/tool", 0755);
  const std::string path = folder / "missing" + ":" + (folder / "a") + ":" + (folder / "b") + ":" + (folder / "c");
  CHECK(find_program("tool", path) == good);
  CHECK(find_program(good, "") == good);

  struct Row {
    std::string name;
    int exit_code;
    std::string in_message;
  };
  const Row rows[] = {
      {"other", 127, "not found in PATH: other"},  {folder / "b/other", 127, "not found: "},
      {plain, 126, "is not executable; chmod +x"}, {folder.add("train.py", 0644), 126, "start it as: python "},
      {folder / "b", 126, "is a directory"},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    try {
      find_program(row.name, path);
      FAIL("no error");
    } catch (const ProgramUnusable& error) {
      CHECK(error.exit_code() == row.exit_code);
      CHECK(std::string(error.what()).find(row.in_message) != std::string::npos);
    }
  }
  try {
    find_program("tool", folder / "a");
    FAIL("no error");
  } catch (const ProgramUnusable& error) {
    CHECK(error.exit_code() == 126);
  }
}

TEST_CASE("without PATH the system's folders are looked in") {
  CHECK(search_path_of({{"PATH", "/a:/b"}}) == "/a:/b");
  CHECK(search_path_of({{"PATH", ""}}).empty());
  CHECK(find_program("sh", search_path_of({{"OTHER", "1"}})).ends_with("/sh"));
}

}  // namespace
}  // namespace hvd::launcher
