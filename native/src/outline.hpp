// The kinds of a text's characters, 64 at a time: words of ASCII are found by bits, not character by character.
#pragma once
#include <cstdint>
#include <vector>

#include "characters.hpp"

namespace keyblock {

// One bit for each of 64 characters, the first is the lowest. After the text all are spaces.
struct Bits {
    static constexpr size_t SIZE = 64;
    uint64_t space, letter, word, ends;  // Kind and Flag of characters.hpp, of ASCII
    uint64_t other;                      // no ASCII, or ODD: read one by one
};

// The ASCII part of a table of characters, in a form for looking up many at once: a set has a byte for each lower half of a
// character, with a bit for each upper half.
class Ascii {
  public:
    explicit Ascii(const Characters& characters);

    static constexpr size_t SETS = 5, HALF = 16, SIZE = 128;
    enum Set : size_t { SPACES, LETTERS, WORDS, ENDINGS, ODDS };
    alignas(16) uint8_t sets[SETS][HALF] = {};
    alignas(16) uint8_t capitals[HALF] = {};  // the set of characters that fold to the character 32 further on
    uint8_t in[SIZE] = {};                    // the sets of a character, one bit each: for the plain way
    uint8_t folded[SIZE] = {};
};

// The number of zeros below the lowest set bit; at least one bit must be set.
inline size_t zeros(uint64_t bits) { return static_cast<size_t>(__builtin_ctzll(bits)); }

// A text's bits, and its ASCII characters folded.
class Outline {
  public:
    template <class Unit>
    void draw(const Ascii& ascii, View<Unit> text);

    // The first character from `at` on that is no space, or the text's end: after the text all are spaces.
    size_t other_than_space_from(size_t at) const {
        for (; at < size_; at += Bits::SIZE)
            if (const uint64_t others = ~bits(&Bits::space, at)) return at + zeros(others);
        return size_;
    }
    // The bits of 64 characters from `at` on.
    Bits bits(size_t at) const {
        return {bits(&Bits::space, at), bits(&Bits::letter, at), bits(&Bits::word, at), bits(&Bits::ends, at), bits(&Bits::other, at)};
    }
    // The same as they are stored: `at` is a multiple of 64.
    const Bits& drawn(size_t at) const { return bits_[at / Bits::SIZE]; }
    // The address of a folded character; eight more may be read after the last.
    const uint8_t* folded(size_t at) const { return folded_.data() + at; }

  private:
    uint64_t bits(uint64_t Bits::*of, size_t at) const {
        const size_t i = at / Bits::SIZE, shift = at % Bits::SIZE;
        return bits_[i].*of >> shift | bits_[i + 1].*of << 1 << (Bits::SIZE - 1 - shift);
    }

    size_t size_ = 0;
    std::vector<Bits> bits_;
    std::vector<uint8_t> folded_;
};

}  // namespace keyblock
