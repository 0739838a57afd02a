#pragma once
#include "text.hpp"

namespace keyblock {

// Writes a character in UTF-8, at most four bytes; returns how many.
inline size_t utf8(Code c, uint8_t* into) {
    const auto tail = [c](int shift) { return static_cast<uint8_t>(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x80) {
        into[0] = static_cast<uint8_t>(c);
        return 1;
    }
    if (c < 0x800) {
        into[0] = static_cast<uint8_t>(0xC0 | c >> 6), into[1] = tail(0);
        return 2;
    }
    if (c < 0x10000) {
        into[0] = static_cast<uint8_t>(0xE0 | c >> 12), into[1] = tail(6), into[2] = tail(0);
        return 3;
    }
    into[0] = static_cast<uint8_t>(0xF0 | c >> 18), into[1] = tail(12), into[2] = tail(6), into[3] = tail(0);
    return 4;
}

}  // namespace keyblock
