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
    // A line of a command's output, most likely an error of ssh.
    std::function<void(int host, const std::string& line)> wrote;
    std::function<void(int host, ExitStatus status)> ended;
  };

  AgentStarter(EventLoop& loop, const SignalSource& signals, Listener listener);
  ~AgentStarter();  // kills the commands that still run

  // Runs `command` in a shell, with `input` as its standard input. Throws Error if no process can be started.
  pid_t start(int host, const std::string& command, const std::string& input);
  // Called after SIGCHLD; returns whether the process was one of these commands.
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
