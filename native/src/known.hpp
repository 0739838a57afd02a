// What is known of words, found by their characters without a lock; one thread at a time adds more.
#pragma once
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "pieces.hpp"

namespace keyblock {

// A word of at most LONGEST characters, packed: a byte each where all are Latin-1, else four, with zeros up to eight bytes.
class Spelling {
  public:
    // Where its characters are written before it is closed.
    Code* room() { return codes_; }
    // Packs and hashes them, by numbers drawn in each process: nobody can prepare words that collide. `bits`: all of them or-ed.
    void close(size_t size, Code bits);
    const Code* codes() const { return codes_; }
    size_t size() const { return size_; }
    uint64_t hash() const { return hash_; }
    uint32_t shape() const { return static_cast<uint32_t>(size_ << 1 | wide_); }
    const uint64_t* words() const { return reinterpret_cast<const uint64_t*>(wide_ ? reinterpret_cast<const uint8_t*>(codes_) : narrow_); }
    size_t n_words() const { return words_of(shape()); }
    static size_t words_of(uint32_t shape) { return ((shape >> 1) * ((shape & 1) != 0 ? sizeof(Code) : 1) + 7) / 8; }

  private:
    alignas(8) uint8_t narrow_[LONGEST + 8];
    alignas(8) Code codes_[LONGEST + 2];
    size_t size_ = 0;
    bool wide_ = false;
    uint64_t hash_ = 0;
};

// What became of a word: it is written once, and only read then.
struct Entry {
    uint64_t hash;
    uint32_t shape;  // of its Spelling
    uint16_t n_pieces, n_keys;
    // behind it stand its spelling, the keys and the pieces
    const uint64_t* words() const { return reinterpret_cast<const uint64_t*>(this + 1); }
    const int64_t* keys() const { return reinterpret_cast<const int64_t*>(words() + Spelling::words_of(shape)); }
    const Piece* pieces() const { return reinterpret_cast<const Piece*>(keys() + n_keys); }
    bool spells(const Spelling& word) const {
        if (hash != word.hash() || shape != word.shape()) return false;
        const uint64_t *own = words(), *other = word.words();
        for (size_t i = 0, n = word.n_words(); i < n; ++i)
            if (own[i] != other[i]) return false;
        return true;
    }
};

class Known {
  public:
    // Words after which no more are kept; whoever fills it makes a new one. A word takes about 100 bytes.
    static constexpr size_t MOST = 1 << 17;

    Known() : slots_(new std::atomic<const Entry*>[SLOTS]()) {}
    const Entry* find(const Spelling& word) const {
        for (size_t at = first_slot(word);; at = (at + 1) & (SLOTS - 1)) {
            const Entry* entry = slots_[at].load(std::memory_order_acquire);
            if (entry == nullptr || entry->spells(word)) return entry;
        }
    }
    // The word's entry: this one, or that of a thread that was first; null where it is full.
    const Entry* add(const Spelling& word, const std::vector<Piece>& pieces, const std::vector<int64_t>& keys);
    bool full() const { return size_.load(std::memory_order_relaxed) >= MOST; }

  private:
    static constexpr size_t SLOTS = MOST * 2, CHUNK = 1 << 16;
    static size_t first_slot(const Spelling& word) { return word.hash() >> 32 & (SLOTS - 1); }
    std::byte* room(size_t bytes);

    std::unique_ptr<std::atomic<const Entry*>[]> slots_;
    std::vector<std::unique_ptr<std::byte[]>> chunks_;
    std::byte* next_ = nullptr;  // free room in the newest chunk
    size_t left_ = 0;
    std::atomic<size_t> size_{0};
    std::mutex adding_;
};

}  // namespace keyblock
