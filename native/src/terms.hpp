// The key of the term that the analyzer makes of a word. One class for each analyzer.
#pragma once
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "characters.hpp"

namespace keyblock {

class Analyzer {
  public:
    virtual ~Analyzer() = default;
    // The key of a run of word characters as in the text, none of them ODD; 0 if it has no term.
    virtual int64_t key(const Code* run, size_t size) const = 0;
    // Appends the normal form of a character, before characters are paired.
    virtual void fold(Code c, std::vector<Code>& into) const { into.push_back(c); }
};

class English : public Analyzer {
  public:
    English(const Characters& characters, std::unordered_set<std::string> stop, bool stem);
    int64_t key(const Code* run, size_t size) const override;

  private:
    const Characters& characters_;
    std::unordered_set<std::string> stop_;
    size_t longest_stop_ = 0;
    bool stem_;
};

// keyblock.text.analyzer.term_key, for a term that is not empty.
int64_t term_key(const Code* term, size_t size);

// BLAKE2b (RFC 7693) with a digest of 8 bytes and without a key; the digest as a little-endian number.
uint64_t blake2b_8(const uint8_t* data, size_t size);

// Stems a lower-case word in place, with room for one more character; returns its new length. Porter's stemmer (Program, 1980), in the
// version of Snowball's `porter`.
size_t porter(Code* word, size_t size);

}  // namespace keyblock
