// A job for tests of who is blamed: one barrier after the other, until an exception that nobody catches ends one rank.
//
//   throwing_loop RANK
#include <cstdlib>
#include <hvd.hpp>
#include <stdexcept>

int main(int argc, char** argv) {
  const int failing = argc > 1 ? std::atoi(argv[1]) : 0;
  const hvd::Session session;
  for (int step = 0;; ++step) {
    if (step == 20 && hvd::rank() == failing) throw std::runtime_error("bad data");
    hvd::barrier();
  }
}
