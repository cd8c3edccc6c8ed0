#include "launcher/watch/python_stack.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

std::string place(std::string_view stack) {
  const auto frame = frame_of_script(stack, "/venv/lib/python3.11/site-packages/hvd");
  return frame ? to_string(*frame) : "";
}

TEST_CASE("where the script is, follows from what faulthandler writes") {
  CHECK(place("Thread 0x00007f0000000001 (most recent call first):\n"
              "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
              "  File \"/home/me/other_thread.py\", line 1 in run\n"
              "\n"
              "Current thread 0x00007f0000000002 (most recent call first):\n"
              "  File \"/venv/lib/python3.11/site-packages/hvd/torch/functions.py\", line 90 in synchronize\n"
              "  File \"/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py\", line 700 in __next__\n"
              "  File \"/home/me/train.py\", line 48 in load_batch\n"
              "  File \"/home/me/train.py\", line 90 in <module>\n") == "train.py:48 in load_batch");
}

TEST_CASE("without a current thread it is the oldest, which comes last") {
  CHECK(place("Thread 0x1 [worker] (most recent call first):\n  File \"a.py\", line 1 in worker\n\n"
              "Thread 0x2 (most recent call first):\n  File \"b.py\", line 2 in main\n") == "b.py:2 in main");
  CHECK(place("Current thread 0x1 (most recent call first):\n  File \"a.py\", line 1 in first\n\n"
              "Thread 0x2 (most recent call first):\n  File \"b.py\", line 2 in main\n") == "a.py:1 in first");
}

TEST_CASE("in libraries alone it is the innermost outside hvd's folder") {
  CHECK(place("Current thread 0x1 (most recent call first):\n"
              "  File \"/venv/lib/python3.11/site-packages/hvd/basics.py\", line 1 in init\n"
              "  File \"/venv/lib/python3.11/site-packages/torch/a.py\", line 2 in b\n"
              "  File \"/usr/lib/python3.11/runpy.py\", line 3 in c\n") == "a.py:2 in b");
  CHECK(place("Current thread 0x1 (most recent call first):\n  File \"/home/hvd/train.py\", line 3 in go\n") ==
        "train.py:3 in go");
}

TEST_CASE("what is no stack has no frame, and odd lines do no harm") {
  CHECK(place("").empty());
  CHECK(place("Current thread 0x1 (most recent call first):\n  <no Python frame>\n").empty());
  CHECK(place("  File \"").empty());
  CHECK(place("  File \"a.py\", line x in b\n").empty());
  CHECK(place("  File \"a.py\", line 99999999999999999999 in b").empty());
  CHECK(place("  File \"a\", line 1\", line 7 in b\x1b[2J") == "a\", line 1:7 in b?[2J");
  CHECK(place("  File \"a.py\", line 7").substr(0, 6) == "a.py:7");
  CHECK(place(std::string("  File \"a.py\", line 7 in\0b", 26)).substr(0, 6) == "a.py:7");
}

}  // namespace
}  // namespace hvd::launcher
