#include "pieces.hpp"

#include <algorithm>

#include "known.hpp"

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

namespace {

uint64_t with(uint64_t hash, Code c) { return (hash + c + 1) * HASH_FACTOR; }

size_t power_of_two(size_t least) {
    size_t found = 1;
    while (found < least) found *= 2;
    return found;
}

}  // namespace

TokenIndex::TokenIndex(size_t most) : seen_((size_t{1} << SEEN_BITS) / 64), slots_(power_of_two(most + 1)) {}

void TokenIndex::add(As as, const Code* token, size_t size, int32_t id) {
    uint64_t hash = HASH_START + as;
    for (size_t i = 0; i < size; ++i) hash = with(hash, token[i]);
    size_t at = first_slot(hash);
    while (slots_[at].token != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {static_cast<uint32_t>(hash), static_cast<uint32_t>(tokens_.size())};
    tokens_.push_back(static_cast<Code>(id)), tokens_.push_back(static_cast<Code>(size));
    tokens_.insert(tokens_.end(), token, token + size);
    seen_[seen_bit(hash) / 64] |= uint64_t{1} << seen_bit(hash) % 64;
    longest_ = std::max(longest_, size);
}

const Code* TokenIndex::find(uint64_t hash, const Code* token, size_t size) const {
    for (size_t at = first_slot(hash); slots_[at].token != 0; at = (at + 1) & (slots_.size() - 1)) {
        if (slots_[at].mark != static_cast<uint32_t>(hash)) continue;
        const Code* const found = &tokens_[slots_[at].token];
        if (found[1] == size && std::equal(token, token + size, found + 2)) return found;
    }
    return nullptr;
}

std::pair<size_t, int32_t> TokenIndex::longest(As as, const Code* word, size_t size) const {
    static thread_local std::vector<uint64_t> hashes;  // of each prefix
    hashes.resize(std::min(size, longest_));
    uint64_t hash = HASH_START + as;
    for (size_t i = 0; i < hashes.size(); ++i) hashes[i] = hash = with(hash, word[i]);
    for (size_t length = hashes.size(); length > 0; --length) {
        if (!seen(hashes[length - 1])) continue;
        if (const Code* found = find(hashes[length - 1], word, length)) return {length, static_cast<int32_t>(*found)};
    }
    return {0, -1};
}

WordPiece::WordPiece(const Characters& characters, const Vocabulary& vocabulary)
    : characters_(characters), tokens_(2 * vocabulary.tokens.size()), unknown_(vocabulary.unknown), most_(vocabulary.most) {
    const auto& prefix = vocabulary.prefix;
    for (const auto& [token, id] : vocabulary.tokens) {
        if (token.empty()) continue;
        tokens_.add(TokenIndex::BEGINNING, token.data(), token.size(), id);
        if (token.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), token.begin()))
            tokens_.add(TokenIndex::CONTINUING, token.data() + prefix.size(), token.size() - prefix.size(), id);
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
        auto [length, id] = tokens_.longest(start == 0 ? TokenIndex::BEGINNING : TokenIndex::CONTINUING, normal.data() + start, size - start);
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
