// Porter's stemmer (Program, 1980), as Snowball's `porter` has it.
#pragma once
#include "text.hpp"

namespace keyblock {

// Stems a lower-case word in place, which has room for one character more; returns its new length.
size_t porter(Code* word, size_t size);

}  // namespace keyblock
