// Reading a text unit by unit: keyblock.text.units explains units, keyblock.text.compiled_tables the properties of each character.
#pragma once
#include "reader.hpp"
#include "tables.hpp"

namespace keyblock {

enum Sort : uint32_t {  // keyblock.text.units.character_sorts, and more
    BLANK_SPACE = 1 << 0,
    SOLID = 1 << 1,
    COMBINING = 1 << 2,
    OF_LETTERS = 1 << 3,
    OF_NUMBERS = 1 << 4,
    OF_OTHERS = 1 << 5,
    PLAIN = 1 << 6,        // the tokenizer's normalizer treats it as if it were alone
    LETTER_CLASS = 1 << 8,   // \p{L}
    NUMBER_CLASS = 1 << 9,   // \p{N}
    MARK_CLASS = 1 << 10,    // \p{M}
    PUNCTUATION = 1 << 11,   // for the pre-tokenizer
    BEGINS_ADDED = 1 << 12,  // may begin an added token
};

// How a tokenizer cuts its texts into words.
struct UnitRules {
    bool breaks_join = false, words_end = false;  // keyblock.text.units.Borders
    Codes bytes;  // the symbols that stand for bytes; none: words of SentencePiece
    // of bytes
    bool newlines_join = false;   // the expression is one of WITH_NEWLINES, not GPT_2
    bool marks_in_words = false;  // it has [\p{L}\p{M}]+
    size_t digits = 1;            // the most digits that stay together, if newlines join
    bool prefix = false;          // a space is added before a text
    bool trim = false;            // places leave spaces out
    std::vector<Codes> added;     // added tokens
    // of SentencePiece
    bool mark_each = false, mark_first = false;  // whether each word gets a mark, or a text's first alone
    bool keeps_space = false;                    // a space at the start stays, as a mark
    bool marks_alone = false;                    // punctuation marks are separate words
    bool joins = false;                          // a mark may be normalized with a letter of few bytes
};

class UnitReader {
  public:
    // model: none: the answers to odd units include each unit's tokens.
    // sorts: see Sort. normal: the normalizer's output for PLAIN characters.
    UnitReader(Table sorts, Spellings normal, UnitRules rules, const Model* model)
        : sorts_(std::move(sorts)), normal_(std::move(normal)), rules_(std::move(rules)), model_(model) {}

    // Appends the tokens of a text to `found`, which has no tokens.
    void read(const Text& text, const Odds& given, Reading& found) const;

  private:
    struct Symbols;  // of a unit
    template <class Unit>
    struct Call;
    template <class Unit>
    size_t unit_end(View<Unit> text, size_t start) const;
    template <class Unit>
    bool ends_solid(View<Unit> text, size_t end) const;
    template <class Unit>
    bool spell(View<Unit> unit, Symbols& into) const;
    bool cut(const Symbols& unit, bool first, std::vector<Piece>& found) const;
    bool cut_words(const Symbols& unit, bool first, std::vector<Piece>& found) const;
    bool cut_bytes(const Symbols& unit, bool first, std::vector<Piece>& found) const;
    size_t word_end(const Codes& codes, size_t start) const;

    Table sorts_;
    Spellings normal_;
    UnitRules rules_;
    const Model* model_;
    Memory memory_;
};

}  // namespace keyblock
