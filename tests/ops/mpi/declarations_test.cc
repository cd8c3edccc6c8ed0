// Compares the plugin's declarations of MPI with a vendor's header: whoever compiles this has tested it. Compiled for
// each binary interface, with its mpi_types.h (ours) and HVD_VENDOR_HEADER.
#include "ops/mpi/plugin/mpi_declarations.h"

#include HVD_VENDOR_HEADER

#include <cstddef>
#include <string_view>

#include "tests/support/same_abi.h"

// Types that macros of the header name are ours from here on: a handle "((MPI_Comm)0x101)" is then one of ours, which
// can be compared while compiling.
namespace hvd::mpi {

namespace {

using namespace hvd::testing;

using Words = Glossary<Word<MPI_Comm, ::MPI_Comm>, Word<MPI_Datatype, ::MPI_Datatype>,
                       Word<MPI_Errhandler, ::MPI_Errhandler>, Word<MPI_Group, ::MPI_Group>, Word<MPI_Op, ::MPI_Op>,
                       Word<MPI_Request, ::MPI_Request>, Word<MPI_Status, ::MPI_Status>>;

#define HVD_COMPARE(name, parameters) \
  static_assert(same_abi<Words, decltype(name), decltype(::name)>, #name " has another signature");
HVD_MPI_FUNCTIONS(HVD_COMPARE)
#undef HVD_COMPARE

static_assert(offsetof(MPI_Status, MPI_SOURCE) == offsetof(::MPI_Status, MPI_SOURCE));
static_assert(offsetof(MPI_Status, MPI_TAG) == offsetof(::MPI_Status, MPI_TAG));
static_assert(offsetof(MPI_Status, MPI_ERROR) == offsetof(::MPI_Status, MPI_ERROR));

#define HVD_TEXT(...) #__VA_ARGS__
#define HVD_TEXT_OF(...) HVD_TEXT(__VA_ARGS__)

// What is ours has the value of the list, which mpi_declarations.h declares it with.
#ifndef HVD_MPI_HANDLES_ARE_OBJECTS
#define HVD_COMPARE(type, name, ...) \
  static_assert((name) == MPI_##type{HVD_MPI_OF_INTERFACE(__VA_ARGS__)}, #name " is something else");
#else
constexpr bool names_object(std::string_view text, std::string_view address) { return text.find(address) != text.npos; }
#define HVD_COMPARE(type, name, ...)                                                                      \
  static_assert(names_object(HVD_TEXT_OF(name), "&(" HVD_TEXT_OF(HVD_MPI_OF_INTERFACE(__VA_ARGS__)) ")"), \
                #name " is another object");
#endif
HVD_MPI_HANDLES(HVD_COMPARE)
#undef HVD_COMPARE

}  // namespace

}  // namespace hvd::mpi

// Numbers: macros or enumerators of the global namespace.
#define HVD_COMPARE(name, ...) static_assert((name) == (HVD_MPI_OF_INTERFACE(__VA_ARGS__)), #name " is something else");
HVD_MPI_NUMBERS(HVD_COMPARE)
#undef HVD_COMPARE

// No cast to a pointer is a constant expression; but a comparison of two is known to the compiler.
namespace hvd::testing {
[[gnu::error("an address is something else")]] void differs();
void compare_addresses();
void compare_addresses() {
#define HVD_COMPARE(type, name, ...) \
  if (reinterpret_cast<std::intptr_t>(name) != std::intptr_t{HVD_MPI_OF_INTERFACE(__VA_ARGS__)}) differs();
  HVD_MPI_ADDRESSES(HVD_COMPARE)
#undef HVD_COMPARE
}
}  // namespace hvd::testing
