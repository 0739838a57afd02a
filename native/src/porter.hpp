// Porter's stemmer (Program, 1980), in the version of Snowball's `porter`.
#pragma once
#include "text.hpp"

namespace keyblock {

// Stems a lower-case word in place, with room for one more character; returns its new length.
size_t porter(Code* word, size_t size);

}  // namespace keyblock
