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

const uint64_t HASH_START = drawn(), HASH_FACTOR = drawn() | 1;

const Known::Slot* Known::add(const Spelling& word, const std::vector<Piece>& pieces, const std::vector<int64_t>& keys) {
    std::lock_guard lock(adding_);
    if (const Slot* first = find(word)) return first;
    if (full()) return nullptr;
    size_t at = first_slot(word.hash());
    while (slots_[at].shape.load(std::memory_order_relaxed) != 0) at = (at + 1) & (2 * most_ - 1);
    Slot& slot = slots_[at];
    const auto size = static_cast<int32_t>(word.size());
    const bool one = word.is_short() && keys.size() == 1 && pieces.size() == 1 && pieces[0].head == 0 && pieces[0].tail == size;
    slot.id = pieces.empty() ? 0 : pieces[0].id;
    slot.mark = word.mark();
    slot.key = keys[0];
    slot.entry = one ? nullptr : entry_of(word, pieces, keys);
    slot.shape.store(word.shape(), std::memory_order_release);
    size_.fetch_add(1, std::memory_order_relaxed);
    return &slot;
}

const Entry* Known::entry_of(const Spelling& word, const std::vector<Piece>& pieces, const std::vector<int64_t>& keys) {
    const size_t spelt = 8 * word.n_words(), own = keys.size() * sizeof(int64_t), cut = pieces.size() * sizeof(Piece);
    std::byte* at = room(sizeof(Entry) + own + spelt + cut);
    const auto* entry = new (at) Entry{
        static_cast<uint32_t>(word.n_words()), static_cast<uint32_t>(pieces.size()), static_cast<uint32_t>(keys.size()), 0};
    std::memcpy(at += sizeof(Entry), keys.data(), own);
    std::memcpy(at += own, word.bytes(), spelt);
    if (cut > 0) std::memcpy(at + spelt, pieces.data(), cut);
    return entry;
}

std::byte* Known::room(size_t bytes) {
    bytes = (bytes + alignof(Entry) - 1) / alignof(Entry) * alignof(Entry);
    if (bytes > left_) {
        left_ = std::max(CHUNK, bytes);
        next_ = chunks_.emplace_back(new std::byte[left_]).get();
        bytes_.fetch_add(left_, std::memory_order_relaxed);
    }
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
}

}  // namespace keyblock
