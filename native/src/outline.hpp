// What the characters of a text are, 64 in a look: words of ASCII are found by their bits, and not character by character.
#pragma once
#include <cstdint>
#include <vector>

#include "characters.hpp"

namespace keyblock {

// Of 64 characters a bit each, the first the lowest. Behind the text all are spaces.
struct Bits {
    static constexpr size_t SIZE = 64;
    uint64_t space, letter, word, ends;  // Kind and Flag of characters.hpp, of ASCII
    uint64_t other;                      // no ASCII, or ODD: read one by one
};

// The ASCII part of a table of characters, in the form in which many are looked up at once: a set has for each lower half of a
// character a byte, in which a bit stands for each upper half.
class Ascii {
  public:
    explicit Ascii(const Characters& characters);

    static constexpr size_t SETS = 5, HALF = 16, SIZE = 128;
    enum Set : size_t { SPACES, LETTERS, WORDS, ENDINGS, ODDS };
    alignas(16) uint8_t sets[SETS][HALF] = {};
    alignas(16) uint8_t capitals[HALF] = {};  // the set of those that fold to the character 32 further on
    uint8_t in[SIZE] = {};                    // the sets of a character, a bit each: the plain way
    uint8_t folded[SIZE] = {};
};

// A text's bits, and its ASCII characters folded.
class Outline {
  public:
    // plainly: character by character, whatever the processor can do.
    template <class Unit>
    void draw(const Ascii& ascii, View<Unit> text, bool plainly = false);

    // The first character from `at` on that is a space, or is none. Both end behind the text: there, all are spaces.
    size_t space_from(size_t at) const;
    size_t other_than_space_from(size_t at) const;
    // The bits of 64 characters from `at` on; `of` says which.
    uint64_t bits(uint64_t Bits::*of, size_t at) const {
        const size_t i = at / Bits::SIZE, shift = at % Bits::SIZE;
        return bits_[i].*of >> shift | bits_[i + 1].*of << 1 << (Bits::SIZE - 1 - shift);
    }
    // Whether one of these characters has its bit set. Most ranges are short.
    bool any(uint64_t Bits::*of, size_t start, size_t end) const {
        for (; start + Bits::SIZE <= end; start += Bits::SIZE)
            if (bits(of, start) != 0) return true;
        return (bits(of, start) & ~(~uint64_t{0} << (end - start))) != 0;
    }
    // Where a character stands folded; eight more may be read behind the last.
    const uint8_t* folded(size_t at) const { return folded_.data() + at; }

  private:
    size_t size_ = 0;
    std::vector<Bits> bits_;
    std::vector<uint8_t> folded_;
};

// The number of zeros below the lowest bit; some bit is set.
inline size_t zeros(uint64_t bits) {
#if defined(__GNUC__)
    return static_cast<size_t>(__builtin_ctzll(bits));
#else
    size_t n = 0;
    for (; (bits & 1) == 0; bits >>= 1) ++n;
    return n;
#endif
}

}  // namespace keyblock
