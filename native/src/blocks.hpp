// Blocks of a text that was read.
#pragma once
#include <vector>

#include "reader.hpp"
#include "sentences.hpp"
#include "structure.hpp"

namespace keyblock {

struct Blocks {
    Ints bounds;        // of blocks, in tokens: two for each block
    Ints starts, ends;  // in the text
    std::vector<int64_t> keys;
    Ints key_bounds;
    Ints asked;  // blocks whose terms Python must find: they cut a run, or hold a long one; their keys are left out
};

// Cuts texts: keyblock.segmenters `cogltx`, `whole_sentences` and `structure`.
class Segmenter {
  public:
    enum By { TOKENS, SENTENCES, STRUCTURE };

    // longest: the most tokens of a block; throws std::invalid_argument for a number by which no text can be cut.
    // by_token: keyblock.text.reading.Rule.
    Segmenter(const Structure& structure, By by, size_t longest, std::vector<uint8_t> by_token);

    // The bounds of the blocks, one more than blocks.
    Ints bounds(const Text& text, const Reading& reading) const;

  private:
    using Costs = std::vector<uint8_t>;  // of a cut after each token
    void cut_sentences(const Text& text, const Reading& reading, Costs& costs) const;
    void cut_structure(const Text& text, const Reading& reading, Costs& costs) const;
    void offer_clauses(const Text& text, const Reading& reading, const Ints& within, Costs& costs) const;
    uint8_t by_token(int32_t id) const { return static_cast<size_t>(id) < by_token_.size() ? by_token_[static_cast<size_t>(id)] : 0; }

    const Structure& structure_;
    By by_;
    size_t longest_;
    std::vector<uint8_t> by_token_;
};

// The blocks between these bounds, with their places and terms.
Blocks blocks_between(const Reading& reading, const Ints& bounds);

}  // namespace keyblock
