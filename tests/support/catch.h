// Catch2 in whichever generation the system has.
#pragma once

#if HVD_CATCH2_MAJOR >= 3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
