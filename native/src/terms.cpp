#include "terms.hpp"

#include <algorithm>

#include "blake2b.hpp"
#include "pieces.hpp"
#include "porter.hpp"
#include "utf8.hpp"

namespace keyblock {

int64_t term_key(const Code* term, size_t size) {
    std::string bytes(4 * size, '\0');
    auto* into = reinterpret_cast<uint8_t*>(bytes.data());
    size_t used = 0;
    for (size_t i = 0; i < size; ++i) used += utf8(term[i], into + used);
    return static_cast<int64_t>(blake2b_8(into, used));
}

int64_t English::key(const Code* run, size_t size) const {
    Code word[LONGEST + 1];
    char spelt[LONGEST];
    bool ascii = size <= LONGEST;  // no stop word is longer, and all are ASCII
    size = std::min(size, LONGEST);
    for (size_t i = 0; i < size; ++i) {
        word[i] = characters_.lower(run[i]);
        spelt[i] = static_cast<char>(word[i]);
        ascii &= word[i] < 128;
    }
    if (ascii && stop_.count(std::string(spelt, size)) != 0) return 0;
    if (stem_) size = porter(word, size);
    return size == 0 ? 0 : term_key(word, size);
}

}  // namespace keyblock
