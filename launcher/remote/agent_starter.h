// Runs the commands that start agents: ssh, srun, or hvdrun itself for this machine. Main thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/loop/event_loop.h"
#include "launcher/loop/signal_source.h"
#include "launcher/output/line_splitter.h"
#include "launcher/output/output_pipe.h"
#include "launcher/processes/child_process.h"
#include "launcher/processes/exit_status.h"

namespace hvd::launcher {

class AgentStarter {
 public:
  struct Listener {
    // A line that a command has written, or whatever has come of one: ssh's complaints, most likely.
    std::function<void(int host, const std::string& line)> wrote;
    std::function<void(int host, ExitStatus status)> ended;
  };

  AgentStarter(EventLoop& loop, const SignalSource& signals, Listener listener);
  ~AgentStarter();  // kills those that still run

  // `command` is a shell's, which finds `input` on its standard input. Throws Error if there is no process to be had.
  pid_t start(int host, const std::string& command, const std::string& input);
  // After SIGCHLD: whether the process was one of these.
  bool child_ended(pid_t pid, ExitStatus status);
  bool empty() const { return commands_.empty(); }
  void signal(int host, int signal);

 private:
  struct Command {
    int host;
    std::unique_ptr<OutputPipe> output;
    LineSplitter lines{nullptr};
  };

  void on_output(pid_t pid, std::string_view bytes);

  EventLoop& loop_;
  const SignalSource& signals_;
  const Listener listener_;
  std::map<pid_t, Command> commands_;
};

}  // namespace hvd::launcher
