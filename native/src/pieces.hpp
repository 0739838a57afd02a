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

// Strings by their characters, in one hash table with open addressing. A string may be followed from any of several roots.
class Trie {
  public:
    explicit Trie(size_t roots) : values_(roots, -1), slots_(1024) {}

    void add(size_t root, const std::vector<Code>& string, int32_t value);
    // The longest string from a root with which a word starts: its length and its value; 0 and -1 for none.
    std::pair<size_t, int32_t> longest(size_t root, const Code* word, size_t size) const;
    // Calls `met` with the length and the value of each such string, shortest first.
    template <class Met>
    void each(size_t root, const Code* word, size_t size, Met&& met) const {
        size_t node = root;
        for (size_t i = 0; i < size; ++i) {
            const Slot& slot = slots_[slot_of(key_of(node, word[i]))];
            if (slot.key == 0) return;
            node = slot.node;
            if (values_[node] >= 0) met(i + 1, values_[node]);
        }
    }

  private:
    struct Slot {
        uint64_t key = 0;  // node and character; 0 if it is free
        uint32_t node = 0;
    };
    static uint64_t key_of(uint64_t node, Code c) { return ((node << 21) | c) + 1; }
    size_t slot_of(uint64_t key) const {
        size_t at = (key * 0x9E3779B97F4A7C15u) >> 20 & (slots_.size() - 1);
        while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
        return at;
    }
    void grow();

    std::vector<int32_t> values_;
    std::vector<Slot> slots_;
    size_t used_ = 0;
};

// Tokens by their characters, in a hash table. A token may begin a word, continue one, or both: these are looked up separately.
class TokenIndex {
  public:
    enum As : uint64_t { BEGINNING, CONTINUING };

    explicit TokenIndex(size_t most);  // the most tokens
    void add(As as, const Code* token, size_t size, int32_t id);
    // The longest token with which a word starts: its length and its id; 0 and -1 for none.
    std::pair<size_t, int32_t> longest(As as, const Code* word, size_t size) const;

  private:
    // Most look-ups find no token: one bit for each of many hashes tells that, and the bits fit into a processor's nearest caches.
    static constexpr uint32_t SEEN_BITS = 19;
    struct Slot {
        uint32_t mark = 0, token = 0;  // its place in `tokens_`; 0 if the slot is free
    };
    const Code* find(uint64_t hash, const Code* token, size_t size) const;
    size_t first_slot(uint64_t hash) const { return hash >> 32 & (slots_.size() - 1); }
    static size_t seen_bit(uint64_t hash) { return hash >> (64 - SEEN_BITS); }
    bool seen(uint64_t hash) const { return (seen_[seen_bit(hash) / 64] >> seen_bit(hash) % 64 & 1) != 0; }

    std::vector<uint64_t> seen_;
    std::vector<Slot> slots_;
    std::vector<Code> tokens_{0};  // each token's id, length and characters, contiguous in memory
    size_t longest_ = 0;
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
    const Characters& characters_;
    TokenIndex tokens_;
    int32_t unknown_;
    size_t most_;
};

}  // namespace keyblock
