// The tokens that the tokenizer's model makes of a word: one class for each model.
#pragma once
#include <unordered_map>
#include <utility>
#include <vector>

#include "characters.hpp"

namespace keyblock {

constexpr size_t LONGEST = 64;  // the most characters of a stored word: keyblock.text.compiled.LONGEST

struct Piece {
    int32_t id;
    int32_t head, tail;  // characters of the word
};
using Codes = std::vector<Code>;

class Model {
  public:
    virtual ~Model() = default;
    // Appends the tokens of a word with their places in it; returns false, and appends nothing, if it cannot find them.
    virtual bool cut(const Code* word, size_t size, std::vector<Piece>& found) const = 0;
};

// Strings by their characters. A string may be followed from any of several roots.
class Trie {
  public:
    explicit Trie(size_t roots) : values_(roots, -1) {}

    void add(size_t root, const Codes& string, int32_t value, size_t from = 0) {
        size_t node = root;
        for (size_t i = from; i < string.size(); ++i) {
            node = nodes_.add(key_of(node, string[i]), static_cast<uint32_t>(values_.size()));
            if (node == values_.size()) values_.push_back(-1);
        }
        values_[node] = value;
    }
    // The longest string from a root with which a word starts: its length and its value; 0 and -1 for none.
    std::pair<size_t, int32_t> longest(size_t root, const Code* word, size_t size) const {
        std::pair<size_t, int32_t> found{0, -1};
        each(root, word, size, [&](size_t length, int32_t value) { found = {length, value}; });
        return found;
    }
    // Calls `met` with the length and the value of each such string, shortest first.
    template <class Met>
    void each(size_t root, const Code* word, size_t size, Met&& met) const {
        size_t node = root;
        for (size_t i = 0; i < size; ++i) {
            const uint32_t* next = nodes_.find(key_of(node, word[i]));
            if (next == nullptr) return;
            node = *next;
            if (values_[node] >= 0) met(i + 1, values_[node]);
        }
    }

  private:
    static uint64_t key_of(uint64_t node, Code c) { return (node << 21) | c; }

    std::vector<int32_t> values_;  // of nodes
    HashTable<uint32_t> nodes_;    // by the node before and the character
};

// Greedy, longest first (Devlin et al., 2019), as in `tokenizers`. A word is as in the text, none of its characters ODD: it always has tokens.
class WordPiece : public Model {
  public:
    struct Vocabulary {
        std::vector<std::pair<Codes, int32_t>> tokens;
        Codes prefix;  // of tokens that continue a word
        int32_t unknown;
        size_t most;  // the most characters of a word; a longer word is unknown
    };

    WordPiece(const Characters& characters, const Vocabulary& vocabulary);
    bool cut(const Code* word, size_t size, std::vector<Piece>& found) const override;

  private:
    enum : size_t { BEGINNING, CONTINUING };  // a token may begin a word, continue one, or both

    const Characters& characters_;
    Trie tokens_{2};
    int32_t unknown_;
    size_t most_;
};

// Byte-pair encoding (Sennrich et al., 2016) as in `tokenizers`: joins the first pair of the lowest rank each time. A word is its symbols:
// characters or bytes, as for Unigram.
class Merges : public Model {
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
class Unigram : public Model {
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
