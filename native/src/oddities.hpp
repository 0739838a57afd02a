// keyblock.text.readable: where a text may be no language, and whether it may be spelled as no reader reads it.
#pragma once
#include <string_view>
#include <vector>

#include "text.hpp"

namespace keyblock {

struct Oddities {
    std::vector<int32_t> rows;  // numbers of rows of 64 characters that are unlike prose
    bool spelled = false;       // whether a character has a plainer spelling
};

// Whether a row of many spaces, digits and marks is code, numbers or a hex dump, and no table of language.
template <class Unit>
bool is_data(const Unit* row, size_t length, int spaces) {
    constexpr int MOST_CODE_SPACES = 5, FEWEST_NUMBER = 62, FEWEST_HEX = 48;
    constexpr std::string_view NUMBER = "0123456789.,:;/%+*^|()[]eE-", HEX = "0123456789abcdefABCDEF:";
    int number = 0, hex = 0;
    for (size_t i = 0; i < length; ++i) {
        const bool space = row[i] <= 32, ascii = row[i] < 127;
        number += space || (ascii && NUMBER.find(static_cast<char>(row[i])) != NUMBER.npos);
        hex += space || (ascii && HEX.find(static_cast<char>(row[i])) != HEX.npos);
    }
    return spaces <= MOST_CODE_SPACES || number >= FEWEST_NUMBER || hex >= FEWEST_HEX;
}

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
        if (spaces < FEWEST_SPACES || (low > MOST_LOW && is_data(text.data + row * ROW, ROW, spaces))) found.rows.push_back(static_cast<int32_t>(row));
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
