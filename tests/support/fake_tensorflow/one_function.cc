// A library that can be taken for a TensorFlow by this function, and needs nothing of C++.
extern "C" __attribute__((visibility("default"))) void TF_NewAsyncKernelBuilder() {}
