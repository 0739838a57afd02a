// What is known of words, found by their characters without a lock; one thread at a time adds more.
#pragma once
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "pieces.hpp"

namespace keyblock {

// What became of a word: it is written once, and only read then.
struct Entry {
    uint64_t hash;
    uint32_t n_codes, n_pieces, n_keys;
    // behind it stand the keys, the pieces and the characters
    int64_t* keys() { return reinterpret_cast<int64_t*>(this + 1); }
    const int64_t* keys() const { return reinterpret_cast<const int64_t*>(this + 1); }
    const Piece* pieces() const { return reinterpret_cast<const Piece*>(keys() + n_keys); }
    const Code* codes() const { return reinterpret_cast<const Code*>(pieces() + n_pieces); }
    bool spells(const Code* word, size_t size) const { return n_codes == size && std::memcmp(codes(), word, size * sizeof(Code)) == 0; }
};

struct Parts {
    const Code* codes;
    size_t n_codes;
    const std::vector<Piece>& pieces;
    const std::vector<int64_t>& keys;
};

uint64_t hash_of(const Code* word, size_t size);  // by a number drawn in each process: nobody can prepare words that collide

class Known {
  public:
    // Words after which no more are kept; whoever fills it makes a new one. A word takes about 100 bytes.
    static constexpr size_t MOST = 1 << 17;

    Known() : slots_(new std::atomic<const Entry*>[SLOTS]()) {}
    const Entry* find(const Code* word, size_t size, uint64_t hash) const {
        for (size_t at = hash & (SLOTS - 1);; at = (at + 1) & (SLOTS - 1)) {
            const Entry* entry = slots_[at].load(std::memory_order_acquire);
            if (entry == nullptr || (entry->hash == hash && entry->spells(word, size))) return entry;
        }
    }
    // The word's entry: this one, or that of a thread that was first; null where it is full.
    const Entry* add(const Parts& parts, uint64_t hash);
    bool full() const { return size_.load(std::memory_order_relaxed) >= MOST; }

  private:
    static constexpr size_t SLOTS = MOST * 2, CHUNK = 1 << 16;
    std::byte* room(size_t bytes);

    std::unique_ptr<std::atomic<const Entry*>[]> slots_;
    std::vector<std::unique_ptr<std::byte[]>> chunks_;
    std::byte* next_ = nullptr;  // free room in the newest chunk
    size_t left_ = 0;
    std::atomic<size_t> size_{0};
    std::mutex adding_;
};

}  // namespace keyblock
