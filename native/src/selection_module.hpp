// The Python interface of the choice of blocks: see selection.hpp.
#pragma once
#include <nanobind/nanobind.h>

namespace keyblock {

void describe_selection(nanobind::module_& module);

}  // namespace keyblock
