#include "terms.hpp"

#include <algorithm>

#include "pieces.hpp"

namespace keyblock {

int64_t term_key(const Code* term, size_t size) {
    static thread_local std::vector<uint8_t> bytes;
    bytes.resize(4 * size);
    size_t used = 0;
    for (size_t i = 0; i < size; ++i) used += utf8(term[i], bytes.data() + used);
    return static_cast<int64_t>(blake2b_8(bytes.data(), used));
}

English::English(const Characters& characters, std::unordered_set<std::string> stop, bool stem)
    : characters_(characters), stop_(std::move(stop)), stem_(stem) {
    for (const std::string& word : stop_) longest_stop_ = std::max(longest_stop_, std::min(word.size(), LONGEST));
}

int64_t English::key(const Code* run, size_t size) const {
    Code word[LONGEST + 1];
    char spelt[LONGEST];
    bool ascii = true;
    const size_t whole = size;
    size = std::min(size, LONGEST);
    for (size_t i = 0; i < size; ++i) {
        word[i] = characters_.lower(run[i]);
        spelt[i] = static_cast<char>(word[i]);
        ascii &= word[i] < 128;
    }
    if (ascii && whole <= longest_stop_ && stop_.count(std::string(spelt, size)) != 0) return 0;
    if (stem_) size = porter(word, size);
    return size == 0 ? 0 : term_key(word, size);
}

}  // namespace keyblock
