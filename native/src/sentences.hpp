// Where sentences end: keyblock.text.sentences, which explains the rules, line by line.
#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "characters.hpp"

namespace keyblock {

using Strings = std::unordered_set<std::string>;  // of ASCII

constexpr size_t WRAPPED_FROM = 40, WRAPPED_TO = 100;  // characters of a line that a width may have broken
constexpr size_t NAME_LENGTH = 40;                    // characters of a speaker's name at most

struct SentenceRules {
    Strings titles, names_go_on, before_numbers, beginners;
};

class Sentences {
  public:
    Sentences(const Characters& characters, SentenceRules rules) : characters(characters), rules(std::move(rules)) {}

    // Appends where sentences end, ascending; the text's end is left out. `found` is empty; `marks` is where ENDS characters stand.
    template <class Unit>
    void ends(View<Unit> text, const std::vector<int32_t>& marks, std::vector<int32_t>& found) const;

    const Characters& characters;
    const SentenceRules rules;
};

}  // namespace keyblock
