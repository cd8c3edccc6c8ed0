// Includes Catch2, version 2 or 3, whichever the system has.
#pragma once

#if HVD_CATCH2_MAJOR >= 3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
