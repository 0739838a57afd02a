// The tokens that SentencePiece and byte-level models make of a word: its symbols (characters or bytes), joined to tokens.
#pragma once
#include <unordered_map>
#include <vector>

#include "pieces.hpp"

namespace keyblock {

using Codes = std::vector<Code>;

class Subwords {
  public:
    virtual ~Subwords() = default;
    // Appends the tokens of a word with their places in its symbols; returns false, and appends nothing, if it cannot find them.
    virtual bool cut(const Code* word, size_t size, std::vector<Piece>& found) const = 0;
};

// Byte-pair encoding (Sennrich et al., 2016) as in `tokenizers`: joins the first pair of the lowest rank each time.
class Merges : public Subwords {
  public:
    struct Merge {
        int32_t left, right, joined;
    };
    // symbols: the tokens of one symbol. merges: by rank. whole: tokens that are whole words.
    Merges(const std::vector<std::pair<Code, int32_t>>& symbols, const std::vector<Merge>& merges,
           const std::vector<std::pair<Codes, int32_t>>& whole);
    bool cut(const Code* word, size_t size, std::vector<Piece>& found) const override;

  private:
    struct Rule {
        int32_t rank, joined;
    };
    static uint64_t pair_of(int32_t left, int32_t right) { return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right); }
    const Rule* rule(int32_t left, int32_t right) const { return rules_.find(pair_of(left, right)); }

    std::vector<int32_t> common_;  // tokens of the first symbols; -1 for none
    std::unordered_map<Code, int32_t> symbols_;
    HashTable<Rule> rules_;
    Trie whole_{1};
};

// The most probable tokens (Kudo, 2018) as `tokenizers` finds them, with adjacent unknown symbols as one token.
class Unigram : public Subwords {
  public:
    struct Token {
        Codes spelling;
        double score;
    };
    // vocabulary: by id.
    Unigram(const std::vector<Token>& vocabulary, int32_t unknown);
    bool cut(const Code* word, size_t size, std::vector<Piece>& found) const override;

  private:
    Trie trie_{1};
    std::vector<double> scores_;
    int32_t unknown_;
    double unknown_score_;
};

}  // namespace keyblock
