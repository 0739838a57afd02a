// keyblock.text.readable: where a text may be no language, and whether it may be spelled as no reader reads it.
#pragma once
#include <vector>

#include "text.hpp"

namespace keyblock {

struct Oddities {
    std::vector<int32_t> rows;  // numbers of rows of 64 characters that are unlike prose
    bool spelled = false;       // whether a character has a plainer spelling
};

template <class Unit>
Oddities oddities_of(View<Unit> text) {
    constexpr size_t ROW = 64;
    constexpr int FEWEST_SPACES = 2, MOST_LOW = 31;
    Oddities found;
    for (size_t row = 0; row < text.size / ROW; ++row) {
        uint8_t spaces = 0, low = 0;
        for (size_t i = row * ROW; i < (row + 1) * ROW; ++i) {
            const Unit code = text.data[i];
            low += code < 64;  // spaces, digits and most marks
            if constexpr (sizeof(Unit) == 1) spaces += code <= 32;
            else spaces += code <= 32 || code >= 0xe00;  // from Thai on, words need no spaces
        }
        if (spaces < FEWEST_SPACES || low > MOST_LOW) found.rows.push_back(static_cast<int32_t>(row));
    }
    if constexpr (sizeof(Unit) > 1) {
        Unit spelled = 0;  // as wide as a character and without branches, so that the compiler takes many characters at once
        for (size_t i = 0; i < text.size; ++i) {
            const Unit code = text.data[i], digit = code - 0xff10, upper = code - 0xff21, lower = code - 0xff41;
            spelled |= (code == 0x200b) | (code == 0x2060) | (code == 0xfeff) | (digit < 10) | (upper < 26) | (lower < 26);
        }
        found.spelled = spelled != 0;
    }
    return found;
}

}  // namespace keyblock
