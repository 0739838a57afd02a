// What is said of each code point. Python says it: nothing here knows Unicode.
#pragma once
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "text.hpp"

namespace keyblock {

constexpr Code CODES = 0x110000;

enum Kind : uint32_t { ODD = 0, SPACE = 1, BREAK = 2, LETTER = 3 };  // keyblock.text.characters.Kind

enum Flag : uint32_t {
    KIND = 3,           // its Kind to the tokenizer
    WORD = 1 << 2,      // \w
    WHITE = 1 << 3,     // \s
    LOWER = 1 << 4,     // islower()
    CAPITAL = 1 << 5,   // isupper() or istitle(): a text with one is not islower()
    DIGIT = 1 << 6,     // isdigit()
    DECIMAL = 1 << 7,   // \d
    MARK = 1 << 8,      // . ! ? and the ellipsis
    FULL_STOP = 1 << 9,  // ends a sentence without a space behind it
    CLOSING = 1 << 10,
    OPENING = 1 << 11,
    LINE_BREAK = 1 << 12,
    BULLET = 1 << 13,   // begins an item of a list
    NAME = 1 << 14,     // may stand in the name of a speaker
};
constexpr uint32_t SIGN_SHIFT = 16;  // above it: what it is to keyblock.text.sentences, see sentences.hpp

struct Character {
    Code normal;  // what the tokenizer's normalizer makes of it, for a BREAK or a LETTER
    Code folded;  // a character that tokenizer and analyzer read alike: words are remembered so
    Code lower;   // as the analyzer has it; NONE where that is several characters
    uint32_t flags;
};
constexpr Code NONE = 0xFFFFFFFF;

// A table in pages, of which equal ones are kept once: 100 KB instead of 17 MB.
class Characters {
  public:
    Characters(const Code* normal, const Code* folded, const Code* lower, const uint32_t* flags) : numbers_(CODES / PAGE) {
        std::unordered_map<std::string, uint16_t> known;
        std::vector<Character> page(PAGE);
        for (Code first = 0; first < CODES; first += PAGE) {
            // offsets from the code point itself, so that pages without cases are equal
            for (Code i = 0, c = first; i < PAGE; ++i, ++c)
                page[i] = {normal[c] - c, folded[c] - c, lower[c] == NONE ? NONE : lower[c] - c, flags[c]};
            std::string bytes(reinterpret_cast<const char*>(page.data()), PAGE * sizeof(Character));
            auto [place, added] = known.emplace(std::move(bytes), static_cast<uint16_t>(known.size()));
            if (added) pages_.insert(pages_.end(), page.begin(), page.end());
            numbers_[first / PAGE] = place->second;
        }
    }

    template <class Unit>
    uint32_t flags(Unit c) const { return at(c).flags; }
    template <class Unit>
    Kind kind(Unit c) const { return static_cast<Kind>(at(c).flags & KIND); }
    template <class Unit>
    bool is(Unit c, uint32_t some) const { return (at(c).flags & some) != 0; }
    Code normal(Code c) const { return c + at(c).normal; }
    Code folded(Code c) const { return c + at(c).folded; }
    Code lower(Code c) const {
        Code step = at(c).lower;
        return step == NONE ? NONE : c + step;
    }

  private:
    static constexpr Code PAGE = 256;

    template <class Unit>
    const Character& at(Unit c) const {
        if constexpr (sizeof(Unit) == 1) return pages_[c];  // the first page is the first that was met
        return pages_[numbers_[c / PAGE] * PAGE + c % PAGE];
    }

    std::vector<uint16_t> numbers_;
    std::vector<Character> pages_;
};

}  // namespace keyblock
