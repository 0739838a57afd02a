// The properties of each code point. Python computes them: nothing here knows Unicode.
#pragma once
#include "tables.hpp"

namespace keyblock {

enum Kind : uint32_t { ODD = 0, SPACE = 1, BREAK = 2, LETTER = 3 };  // keyblock.text.characters.Kind

enum Flag : uint32_t {
    KIND = 3,           // its Kind for the tokenizer
    WORD = 1 << 2,      // \w
    WHITE = 1 << 3,     // \s
    LOWER = 1 << 4,     // islower()
    CAPITAL = 1 << 5,   // isupper() or istitle(): a text with one is not islower()
    DIGIT = 1 << 6,     // isdigit()
    DECIMAL = 1 << 7,   // \d
    MARK = 1 << 8,      // . ! ? and the ellipsis
    FULL_STOP = 1 << 9,  // ends a sentence without a space after it
    CLOSING = 1 << 10,
    OPENING = 1 << 11,
    LINE_BREAK = 1 << 12,
    BULLET = 1 << 13,   // begins an item of a list
    NAME = 1 << 14,     // may stand in the name of a speaker
    ENDS = 1 << 15,     // may end a sentence, by its sign
};
constexpr uint32_t SIGN_SHIFT = 16;  // three bits: its Sign, by which most ends of sentences are told from its neighbours'
enum Sign : uint32_t { OTHER, BLANK, UPPER_CASE, LOWER_CASE, NUMERAL, PERIOD, ASK, STOP };
constexpr Sign sign_of(uint32_t flags) { return static_cast<Sign>(flags >> SIGN_SHIFT & 7); }

enum LayoutFlag : uint32_t {  // its properties in keyblock.text.structure: more flags
    ALPHABETIC = 1 << 19,  // isalpha()
    OTHER_STOP = 1 << 20,  // ends a sentence without a space after it, like FULL_STOP
    COMMA = 1 << 21,       // ends a clause without a space after it
    PAUSE = 1 << 22,       // ends a clause before a space
    PHRASED = 1 << 23,     // of a script that puts spaces between phrases
    ITEM_MARK = 1 << 24,   // begins an item of a list before a space
    WIDE_COLON = 1 << 25,  // follows the name of a speaker without a space
};
constexpr Code NONE = 0xFFFFFFFF;

constexpr Sign sign_of(Code c, uint32_t flags) {
    if (c == ' ') return BLANK;
    if (c >= 'A' && c <= 'Z') return UPPER_CASE;
    if (c >= 'a' && c <= 'z') return LOWER_CASE;
    if (c >= '0' && c <= '9') return NUMERAL;
    if (c == '.') return PERIOD;
    if (c == '?' || c == '!') return ASK;
    return (flags & (MARK | FULL_STOP | LINE_BREAK)) != 0 ? STOP : OTHER;
}

class Characters {
  public:
    struct Common {
        uint32_t flags;
        Code fold;  // to be added to the code point
    };

    // normal: the output of the tokenizer's normalizer, for a BREAK or a LETTER
    // folded: a character that tokenizer and analyzer read in the same way; words are stored in this form
    // lower:  the analyzer's lower case; NONE if that is several characters
    Characters(const Code* normal, const Code* folded, const Code* lower, const uint32_t* flags)
        : common_([=](Code c) {
              const Sign sign = sign_of(c, flags[c]);
              return Common{flags[c] | sign << SIGN_SHIFT | (sign >= PERIOD ? ENDS : 0u), folded[c] - c};
          }),
          rare_([=](Code c) { return Rare{normal[c] - c, lower[c] == NONE ? NONE : lower[c] - c}; }) {}

    template <class Unit>
    Common common(Unit c) const { return common_[c]; }
    template <class Unit>
    uint32_t flags(Unit c) const { return common_[c].flags; }
    template <class Unit>
    Kind kind(Unit c) const { return static_cast<Kind>(flags(c) & KIND); }
    template <class Unit>
    bool is(Unit c, uint32_t some) const { return (flags(c) & some) != 0; }
    Code normal(Code c) const { return c + rare_[c].normal; }
    Code lower(Code c) const {
        const Code step = rare_[c].lower;
        return step == NONE ? NONE : c + step;
    }

  private:
    struct Rare {
        Code normal, lower;
    };

    // steps from the code point itself, so that pages without cases are equal
    Paged<Common> common_;
    Paged<Rare> rare_;
};

}  // namespace keyblock
