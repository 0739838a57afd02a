// Where sentences end: keyblock.text.sentences, which explains the rules, line by line.
#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "characters.hpp"

namespace keyblock {

using Strings = std::unordered_set<std::string>;  // of ASCII

constexpr size_t WRAPPED_FROM = 40, WRAPPED_TO = 100;  // lengths of a line that may have been wrapped
constexpr size_t NAME_LENGTH = 40;                    // the most characters of a speaker's name

struct SentenceRules {
    Strings titles, names_go_on, before_numbers, beginners;
};

class Sentences {
  public:
    Sentences(const Characters& characters, SentenceRules rules) : characters(characters), rules(std::move(rules)) {}

    // Where sentences end, ascending, without the text's end. `marks` are the places of ENDS characters.
    std::vector<int32_t> ends(const Text& text, const std::vector<int32_t>& marks) const;

    const Characters& characters;
    const SentenceRules rules;
};

}  // namespace keyblock
