#pragma once

namespace hvd::testing {

// Paths of what the build makes for tests to open or start, one for each target without the "hvd_" of its name. They
// are defined in files that hvd_add_built() writes: a file that is compiled with a path of its clone in it is compiled
// again in every other clone, where ccache has all others.
namespace built {

extern const char* const fake_cuda;
extern const char* const fake_cuda_older;
extern const char* const fake_nccl;
extern const char* const fake_nccl_older;

extern const char* const fake_mpi_openmpi;
extern const char* const fake_mpi_mpich;
extern const char* const fake_mpi_mpich5;
extern const char* const fake_mpi_standard;

extern const char* const tensorflow;
extern const char* const fake_tensorflow;
extern const char* const lacking_tensorflow;
extern const char* const alien_tensorflow;
extern const char* const test_loading_program;

extern const char* const jax;

}  // namespace built

}  // namespace hvd::testing
