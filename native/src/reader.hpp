// Reading a text word by word: its tokens, and the runs of which its terms are made (see keyblock.text.compiled).
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "known.hpp"
#include "outline.hpp"
#include "pieces.hpp"
#include "terms.hpp"

namespace keyblock {

using Ints = std::vector<int32_t>;

struct Run {
    int32_t head, tail;
    int64_t key;  // 0 for a run without a term, and for a run longer than LONGEST
};

// A question about a stretch: its tokens, as the first unit of a text, as the last unit, whose end may change, or as any other unit;
// or its terms. Only the first of these does not stand before the stretch in the name of its answer: others are no characters.
enum Asked : Code { TOKENS = 0, FIRST_TOKENS = 0x110000, LAST_TOKENS = 0x110001, TERMS = 0x110002 };

template <class Unit>
std::u32string name_of(Asked asked, const Unit* from, const Unit* to) {
    std::u32string name(asked == TOKENS ? 0 : 1, static_cast<char32_t>(asked));
    return name.append(from, to);
}

struct Reading {
    std::vector<Piece> tokens;  // with their places in the text
    std::vector<Run> runs;
    Ints marks;    // places of characters that may end a sentence
    Ints missing;  // head, tail and Asked of each stretch without an answer: the reading is then not complete

    void ask(size_t head, size_t tail, Asked what) {
        for (size_t said : {head, tail, static_cast<size_t>(what)}) missing.push_back(static_cast<int32_t>(said));
    }
    void clear() { tokens.clear(), runs.clear(), marks.clear(), missing.clear(); }
};

// The tokens and terms of an odd stretch: Python gets them from the tokenizer and the analyzer.
struct Odd {
    std::vector<Piece> pieces;
    std::vector<int64_t> keys;  // at least one; 0 if there is no term
};
using Odds = std::unordered_map<std::u32string, Odd>;

class WordReader {
  public:
    WordReader(const Characters& characters, std::unique_ptr<Model> model, std::unique_ptr<Analyzer> analyzer)
        : characters(characters), ascii_(characters), model_(std::move(model)), analyzer_(std::move(analyzer)) {}

    // Reads the first of these words, so that a new process has the common ones.
    void meet(const std::vector<std::pair<std::vector<Code>, int32_t>>& words) const;

    // Reads a text into `found`, which is empty. `given` answers odd stretches; the short ones are stored.
    void read(const Text& text, const Odds& given, Reading& found) const;

    const Characters& characters;

  private:
    template <class Unit>
    struct Call;  // the reading of one text

    const Ascii ascii_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<Analyzer> analyzer_;
    Memory memory_;
};

}  // namespace keyblock
