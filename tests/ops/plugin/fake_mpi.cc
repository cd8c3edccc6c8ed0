// As much of an MPI library as tells its binary interface: compiled once for each kind.
#define EXPORTED __attribute__((visibility("default")))

extern "C" {

#ifdef FAKE_OPEN_MPI
EXPORTED char ompi_mpi_comm_world = 0;
#else
EXPORTED void MPIR_Err_return_comm() {}  // both of MPICH's libraries have it
#endif

#ifdef FAKE_ABI_VERSION
EXPORTED int MPI_Abi_get_version(int* major, int* minor) {
  *major = FAKE_ABI_VERSION;
  *minor = 0;
  return 0;
}
#endif
}
