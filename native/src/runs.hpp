// Finds the runs of a text, independently of its tokens: keyblock.text.compiled explains what a run is.
#pragma once
#include "reader.hpp"
#include "tables.hpp"

namespace keyblock {

enum RunFlag : uint32_t {
    RUN_KIND = 3,           // its Kind for the analyzer: SPACE, LETTER, or ODD if only the analyzer can read the text around it
    IN_RUN = 1 << 2,
    PAIRED = 1 << 3,        // belongs to pairs
    ENDS_SENTENCE = 1 << 4,  // ENDS of characters.hpp
    VANISHES = 1 << 5,       // is no part of the term
};

// keyblock.text.universal: one spelling, of characters that do not change their neighbours.
class Universal : public Analyzer {
  public:
    explicit Universal(Spellings folded) : folded_(std::move(folded)) {}
    int64_t key(const Code* run, size_t size) const override;
    void fold(Code c, std::vector<Code>& into) const override {
        folded_.spell(c, [&](Code one) { into.push_back(one); });
    }

  private:
    Spellings folded_;
};

class RunReader {
  public:
    // flags: see RunFlag. analyzer: none: the answers to odd runs include each run's terms. most: the most runs that are stored.
    RunReader(Table flags, const Analyzer* analyzer, size_t most) : flags_(std::move(flags)), analyzer_(analyzer), memory_(most) {}

    // Appends the runs of a text to `found`, which has no runs, and the marks that may end a sentence, in order.
    void read(const Text& text, const Odds& given, Reading& found) const;

  private:
    template <class Unit>
    struct Call;

    Table flags_;
    const Analyzer* analyzer_;
    Memory memory_;
};

}  // namespace keyblock
