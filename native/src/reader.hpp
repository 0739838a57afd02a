// Reading a text word by word: its tokens, and the runs that its terms are made of (keyblock.text.compiled says what these are).
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "outline.hpp"
#include "pieces.hpp"
#include "terms.hpp"

namespace keyblock {

using Ints = std::vector<int32_t>;

struct Run {
    int32_t head, tail;
    int64_t key;  // 0 for a run without a term, and for one that is longer than LONGEST
};

// What is asked of a stretch: its tokens, as of the first unit of a text, or of the last one where its end may be changed, or of any
// other; or its terms. The first two stand as a character in front of the names of such units.
enum Asked : Code { TOKENS = 0, FIRST_TOKENS = 0x10FFFF, LAST_TOKENS = 0x10FFFE, TERMS = 0x10FFFD };

struct Reading {
    std::vector<Piece> tokens;  // with their places in the text
    std::vector<Run> runs;
    Ints marks;    // where characters stand that may end a sentence
    Ints missing;  // head, tail and Asked of each stretch that nobody has said anything of: the reading then is not complete

    void ask(size_t head, size_t tail, Asked what) {
        for (size_t said : {head, tail, static_cast<size_t>(what)}) missing.push_back(static_cast<int32_t>(said));
    }
    void clear() { tokens.clear(), runs.clear(), marks.clear(), missing.clear(); }
};

// What the tokenizer and the analyzer make of an odd stretch: Python asks them.
struct Odd {
    std::vector<Piece> pieces;
    std::vector<int64_t> keys;  // at least one; 0 where there is no term
};
using Odds = std::unordered_map<std::u32string, Odd>;

class Known;

class WordReader {
  public:
    WordReader(const Characters& characters, std::unique_ptr<Model> model, std::unique_ptr<Analyzer> analyzer);

    // Reads the first of these words, so that a new process knows the usual ones.
    void meet(const std::vector<std::pair<std::vector<Code>, int32_t>>& words) const;

    // Reads a text into `found`, which is empty, or what was read of it before: then only what is missing is read. `given` knows odd
    // stretches; the short ones are remembered.
    template <class Unit>
    void read(View<Unit> text, const Odds& given, Reading& found) const;

    // Appends the keys of what runs become that are cut at these places; false, and nothing, where something between is ODD.
    template <class Unit>
    bool keys_between(View<Unit> text, size_t start, size_t end, std::vector<int64_t>& found) const;

    const Characters& characters;

  private:
    template <class Unit>
    struct Call;  // the reading of one text

    std::shared_ptr<Known> known() const;

    const Ascii ascii_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<Analyzer> analyzer_;
    mutable std::shared_ptr<Known> known_;
    mutable std::mutex renewing_;
};

}  // namespace keyblock
