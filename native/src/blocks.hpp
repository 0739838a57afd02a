// Blocks of a text that was read. One class for each segmenter: `whole_sentences` and `structure` so far.
#pragma once
#include <functional>
#include <variant>
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
    Ints asked;  // blocks whose terms Python must find: they cut an odd stretch, or hold a long one; their keys are left out
};

// The most tokens of a block; throws std::invalid_argument for a number by which no text can be cut.
size_t block_size(size_t longest);

// keyblock.segmenters.split: the cheapest split into blocks of at most `longest` tokens; appends the bounds to `found`.
void split(const std::vector<uint8_t>& costs, size_t longest, Ints& found);

class WholeSentences {
  public:
    WholeSentences(const Sentences& sentences, std::vector<uint8_t> roles, size_t longest)
        : sentences_(sentences), roles_(std::move(roles)), longest_(block_size(longest)) {}

    // The bounds of the blocks, one more than blocks.
    template <class Unit>
    Ints bounds(View<Unit> text, const Reading& reading) const;

  private:
    uint8_t role(int32_t id) const { return static_cast<size_t>(id) < roles_.size() ? roles_[static_cast<size_t>(id)] : 0; }

    const Sentences& sentences_;
    std::vector<uint8_t> roles_;  // of each token: keyblock.segmenters.token_roles
    size_t longest_;
};

class ByStructure {
  public:
    ByStructure(const Structure& structure, size_t longest) : structure_(structure), longest_(block_size(longest)) {}

    // See WholeSentences.
    template <class Unit>
    Ints bounds(View<Unit> text, const Reading& reading) const;

  private:
    template <class Unit>
    void offer_clauses(View<Unit> text, const Reading& reading, const Ints& within, std::vector<uint8_t>& costs) const;

    const Structure& structure_;
    size_t longest_;
};

using Segmenter = std::variant<const WholeSentences*, const ByStructure*>;

template <class Unit>
Ints bounds_by(const Segmenter& segmenter, View<Unit> text, const Reading& reading) {
    return std::visit([&](const auto* one) { return one->bounds(text, reading); }, segmenter);
}

// Appends the keys of the text between two places, read separately; returns false, and appends nothing, if only Python can find them.
using KeysBetween = std::function<bool(size_t, size_t, std::vector<int64_t>&)>;

// The blocks between these bounds, with their places and terms. `apart` finds the terms of blocks that cut a run, or hold a long one.
Blocks blocks_between(const Reading& reading, const KeysBetween& apart, const Ints& bounds);

}  // namespace keyblock
