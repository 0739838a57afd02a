#include "pieces.hpp"

#include <algorithm>

namespace keyblock {

void Trie::grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
        if (slot.key != 0) slots_[slot_of(slot.key)] = slot;
}

void Trie::add(size_t root, const std::vector<Code>& string, int32_t value) {
    size_t node = root;
    for (Code c : string) {
        if (used_ * 2 >= slots_.size()) grow();
        Slot& slot = slots_[slot_of(key_of(node, c))];
        if (slot.key == 0) {
            slot = {key_of(node, c), static_cast<uint32_t>(values_.size())};
            values_.push_back(-1);
            ++used_;
        }
        node = slot.node;
    }
    values_[node] = value;
}

std::pair<size_t, int32_t> Trie::longest(size_t root, const Code* word, size_t size) const {
    std::pair<size_t, int32_t> found{0, -1};
    each(root, word, size, [&](size_t length, int32_t value) { found = {length, value}; });
    return found;
}

WordPiece::WordPiece(const Characters& characters, const Vocabulary& vocabulary)
    : characters_(characters), unknown_(vocabulary.unknown), most_(vocabulary.most) {
    const auto& prefix = vocabulary.prefix;
    for (const auto& [token, id] : vocabulary.tokens) {
        if (token.empty()) continue;
        trie_.add(0, token, id);
        if (token.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), token.begin()))
            trie_.add(1, {token.begin() + static_cast<std::ptrdiff_t>(prefix.size()), token.end()}, id);
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
        auto [length, id] = trie_.longest(start == 0 ? 0 : 1, normal.data() + start, size - start);
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
