#include "pieces.hpp"

#include <algorithm>

namespace keyblock {

WordPiece::WordPiece(const Characters& characters, const Vocabulary& vocabulary)
    : characters_(characters), unknown_(vocabulary.unknown), most_(vocabulary.most) {
    const auto& prefix = vocabulary.prefix;
    for (const auto& [token, id] : vocabulary.tokens) {
        if (token.empty()) continue;
        tokens_.add(BEGINNING, token, id);
        if (token.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), token.begin()))
            tokens_.add(CONTINUING, token, id, prefix.size());
    }
}

void WordPiece::cut(const Code* word, size_t size, std::vector<Piece>& found) const {
    const size_t first = found.size();
    const auto whole = Piece{unknown_, 0, static_cast<int32_t>(size)};
    if (size > most_) {
        found.push_back(whole);
        return;
    }
    static thread_local std::vector<Code> normal;
    normal.resize(size);
    for (size_t i = 0; i < size; ++i) normal[i] = characters_.normal(word[i]);
    for (size_t start = 0; start < size;) {
        auto [length, id] = tokens_.longest(start == 0 ? BEGINNING : CONTINUING, normal.data() + start, size - start);
        if (length == 0) {
            found.resize(first);
            found.push_back(whole);
            return;
        }
        found.push_back({id, static_cast<int32_t>(start), static_cast<int32_t>(start + length)});
        start += length;
    }
}

}  // namespace keyblock
