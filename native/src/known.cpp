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

uint64_t hash_of(const Code* word, size_t size) {
    static const uint64_t start = drawn(), factor = drawn() | 1;
    uint64_t hash = start ^ size;
    for (size_t i = 0; i < size; ++i) {
        hash = (hash ^ word[i]) * factor;
        hash ^= hash >> 32;
    }
    return hash;
}

const Entry* Known::add(const Parts& parts, uint64_t hash) {
    std::lock_guard lock(adding_);
    if (const Entry* first = find(parts.codes, parts.n_codes, hash)) return first;
    if (full()) return nullptr;
    const size_t keys = parts.keys.size() * sizeof(int64_t), pieces = parts.pieces.size() * sizeof(Piece);
    std::byte* at = room(sizeof(Entry) + keys + pieces + parts.n_codes * sizeof(Code));
    auto* entry = new (at) Entry{
        hash, static_cast<uint32_t>(parts.n_codes), static_cast<uint32_t>(parts.pieces.size()), static_cast<uint32_t>(parts.keys.size())};
    at += sizeof(Entry);
    std::memcpy(at, parts.keys.data(), keys);
    if (pieces > 0) std::memcpy(at + keys, parts.pieces.data(), pieces);
    std::memcpy(at + keys + pieces, parts.codes, parts.n_codes * sizeof(Code));
    size_t slot = hash & (SLOTS - 1);
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
