// loading_program OPS [TENSORFLOW]: loads a TensorFlow and the ops, and prints what these say is wrong.
#include <dlfcn.h>

#include <cstdio>

int main(int count, char** arguments) {
  if (count > 2 && dlopen(arguments[2], RTLD_NOW) == nullptr) return 2;
  void* const ops = dlopen(arguments[1], RTLD_NOW);
  if (ops == nullptr) return 3;
  std::fputs(reinterpret_cast<const char* (*)()>(dlsym(ops, "hvd_tensorflow_problem"))(), stdout);
  return 0;
}
