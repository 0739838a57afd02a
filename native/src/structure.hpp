// Where a text of any kind may be cut: keyblock.text.structure, which explains the rules.
#pragma once
#include <vector>

#include "sentences.hpp"

namespace keyblock {

enum CutKind : uint8_t { NO_CUT = 0, FREE_CUT = 1, SENTENCE_CUT = 2, CLAUSE_CUT = 3 };  // keyblock.text.structure.Cut: its cost

struct Cut {
    int32_t place;
    CutKind kind;
};

class Structure {
  public:
    explicit Structure(const Sentences& sentences) : sentences(sentences) {}

    // Places after which a text may be cut, ascending. `marks` are the places of ENDS characters.
    std::vector<Cut> cuts(const Text& text, const std::vector<int32_t>& marks) const;

    // Where clauses end, ascending.
    std::vector<int32_t> clauses(const Text& text) const;

    const Sentences& sentences;
};

}  // namespace keyblock
