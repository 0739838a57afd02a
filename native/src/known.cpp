#include "known.hpp"

#include <algorithm>
#include <new>
#include <random>
#include <utility>

namespace keyblock {
namespace {

uint64_t drawn() {
    std::random_device source;
    return static_cast<uint64_t>(source()) << 32 | source();
}

}  // namespace

void Spelling::close(size_t size, Code bits) {
    static const uint64_t start = drawn(), factor = drawn() | 1;
    size_ = size, wide_ = bits >= 256;
    codes_[size] = 0;
    if (!wide_) {
        std::memset(narrow_ + size, 0, 8);
        for (size_t i = 0; i < size; ++i) narrow_[i] = static_cast<uint8_t>(codes_[i]);
    }
    uint64_t hash = start ^ shape();
    const uint64_t* some = words();
    for (size_t i = 0, n = n_words(); i < n; ++i) {
        hash = (hash ^ some[i]) * factor;
        hash ^= hash >> 32;
    }
    hash_ = hash * factor;
}

const Entry* Known::add(const Spelling& word, const std::vector<Piece>& pieces, const std::vector<int64_t>& keys) {
    constexpr size_t MOST_PARTS = 1 << 16;  // of a word: no character becomes so many
    std::lock_guard lock(adding_);
    if (const Entry* first = find(word)) return first;
    if (full() || pieces.size() >= MOST_PARTS || keys.size() >= MOST_PARTS) return nullptr;
    const size_t spelt = word.n_words() * sizeof(uint64_t), own = keys.size() * sizeof(int64_t), cut = pieces.size() * sizeof(Piece);
    std::byte* at = room(sizeof(Entry) + spelt + own + cut);
    auto* entry = new (at) Entry{word.hash(), word.shape(), static_cast<uint16_t>(pieces.size()), static_cast<uint16_t>(keys.size())};
    at += sizeof(Entry);
    std::memcpy(at, word.words(), spelt);
    std::memcpy(at += spelt, keys.data(), own);
    if (cut > 0) std::memcpy(at + own, pieces.data(), cut);
    size_t slot = first_slot(word);
    while (slots_[slot].load(std::memory_order_relaxed) != nullptr) slot = (slot + 1) & (SLOTS - 1);
    slots_[slot].store(entry, std::memory_order_release);
    size_.fetch_add(1, std::memory_order_relaxed);
    return entry;
}

std::byte* Known::room(size_t bytes) {
    bytes = (bytes + alignof(Entry) - 1) / alignof(Entry) * alignof(Entry);
    if (bytes > left_) {
        left_ = std::max(CHUNK, bytes);
        next_ = chunks_.emplace_back(new std::byte[left_]).get();
    }
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
}

}  // namespace keyblock
