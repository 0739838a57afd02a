// The tokens that the tokenizer's model makes of a word. One class for each model: WordPiece here, BPE and Unigram in subwords.hpp.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "characters.hpp"

namespace keyblock {

constexpr size_t LONGEST = 64;  // the most characters of a stored word: keyblock.text.compiled.LONGEST

struct Piece {
    int32_t id;
    int32_t head, tail;  // characters of the word
};

class Model {
  public:
    virtual ~Model() = default;
    // Appends the tokens of a word as it is in the text: none of its characters is ODD.
    virtual void cut(const Code* word, size_t size, std::vector<Piece>& found) const = 0;
};

// Strings by their characters. A string may be followed from any of several roots.
class Trie {
  public:
    explicit Trie(size_t roots) : values_(roots, -1) {}

    void add(size_t root, const std::vector<Code>& string, int32_t value, size_t from = 0) {
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

// Greedy, longest first (Devlin et al., 2019), as in `tokenizers`.
class WordPiece : public Model {
  public:
    struct Vocabulary {
        std::vector<std::pair<std::vector<Code>, int32_t>> tokens;
        std::vector<Code> prefix;  // of tokens that continue a word
        int32_t unknown;
        size_t most;  // the most characters of a word; a longer word is unknown
    };

    WordPiece(const Characters& characters, const Vocabulary& vocabulary);
    void cut(const Code* word, size_t size, std::vector<Piece>& found) const override;

  private:
    enum : size_t { BEGINNING, CONTINUING };  // a token may begin a word, continue one, or both

    const Characters& characters_;
    Trie tokens_{2};
    int32_t unknown_;
    size_t most_;
};

}  // namespace keyblock
