// The stored results for words, found by their characters without a lock; one thread at a time adds more.
#pragma once
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "pieces.hpp"

namespace keyblock {

// Random in each process, so that nobody can prepare words that collide.
extern const uint64_t HASH_START, HASH_FACTOR;

// A word of at most LONGEST characters, packed: one byte for each if all are Latin-1, else four, with zeros up to eight bytes.
class Spelling {
  public:
    const Code* codes() const { return codes_; }
    // Writes a character, in both widths.
    void put(size_t at, Code c) { codes_[at] = c, narrow_[at] = static_cast<uint8_t>(c); }
    // Packs and hashes the characters that were put. `bits`: all of them or-ed.
    void close(size_t size, Code bits) {
        size_ = size, wide_ = bits >= 256;
        codes_[size] = 0;
        std::memset(narrow_ + size, 0, 8);
        uint64_t hash = HASH_START ^ shape();
        for (size_t i = 0, n = n_words(); i < n; ++i) hash = mixed(hash, word(i));
        hash_ = hash * HASH_FACTOR;
    }
    // What identifies a short word, and where it is found; `from` and `size` as for `take`.
    struct Short {
        uint64_t mark, hash;
        uint32_t shape;
        Short(const uint8_t* from, size_t size) : mark(first_bytes(from, size)), shape(static_cast<uint32_t>(size << 1)) {
            hash = mixed(HASH_START ^ shape, mark) * HASH_FACTOR;
        }
    };
    // The same for characters elsewhere, of any width, after `before` unless that is 0.
    template <class Unit>
    void set(const Unit* from, size_t size, Code before = 0) {
        Code bits = before;
        size_t n = 0;
        if (before != 0) put(n++, before);
        for (size_t i = 0; i < size; ++i) bits |= from[i], put(n++, from[i]);
        close(n, bits);
    }
    // The same for characters elsewhere, one byte each; eight more bytes may be read there. The word's codes are not written.
    void take(const uint8_t* from, size_t size) {
        size_ = size, wide_ = false;
        uint64_t hash = HASH_START ^ shape();
        for (size_t at = 0; at < size; at += 8) {
            const uint64_t word = first_bytes(from + at, size - at);
            std::memcpy(narrow_ + at, &word, 8);
            hash = mixed(hash, word);
        }
        hash_ = hash * HASH_FACTOR;
    }
    size_t size() const { return size_; }
    uint64_t hash() const { return hash_; }
    uint32_t shape() const { return static_cast<uint32_t>(size_ << 1 | wide_); }  // never 0
    bool is_short() const { return !wide_ && size_ <= 8; }
    // Distinguishes it from most other words of its shape, and from all others if it is short.
    uint64_t mark() const { return is_short() ? word(0) : hash_; }
    const uint8_t* bytes() const { return wide_ ? reinterpret_cast<const uint8_t*>(codes_) : narrow_; }
    size_t n_words() const { return words_of(shape()); }
    static size_t words_of(uint32_t shape) { return ((shape >> 1) * ((shape & 1) != 0 ? sizeof(Code) : 1) + 7) / 8; }

  private:
    static uint64_t mixed(uint64_t hash, uint64_t word) {
        hash = (hash ^ word) * HASH_FACTOR;
        return hash ^ hash >> 32;
    }
    // The first eight bytes, or all if there are fewer, followed by zeros.
    static uint64_t first_bytes(const uint8_t* from, size_t size) {
        uint64_t found = 0;
        std::memcpy(&found, from, 8);
        if (size < 8) found &= ~uint64_t{0} >> (64 - 8 * size);
        return found;
    }
    uint64_t word(size_t i) const {
        uint64_t found;
        std::memcpy(&found, bytes() + 8 * i, 8);
        return found;
    }

    alignas(8) uint8_t narrow_[LONGEST + 8];
    alignas(8) Code codes_[LONGEST + 2];
    size_t size_ = 0;
    bool wide_ = false;
    uint64_t hash_ = 0;
};

// The result for a word that is more than one token, or not short. It is written once, and then only read.
struct alignas(8) Entry {
    uint32_t n_words, n_pieces, n_keys, unused;
    // followed in memory by the keys, its spelling and the pieces
    const int64_t* keys() const { return reinterpret_cast<const int64_t*>(this + 1); }
    const uint8_t* spelling() const { return reinterpret_cast<const uint8_t*>(keys() + n_keys); }
    const Piece* pieces() const { return reinterpret_cast<const Piece*>(spelling() + 8 * n_words); }
};

class Known {
  public:
    // The most words that are kept; the thread that fills it makes a new one. A word takes 64 bytes, and about 60 more with an entry.
    static constexpr size_t MOST = 1 << 17;  // a power of two, as any number must be
    // The most bytes of entries: odd words of many tokens take 1.5 KB each.
    static constexpr size_t MOST_BYTES = 1 << 24;

    // A word: most are short and have one token, and need no second look-up in memory.
    struct alignas(32) Slot {
        std::atomic<uint32_t> shape{0};  // 0 if it is free; written last
        int32_t id;                      // its only token, if there is no entry
        uint64_t mark;
        int64_t key;  // its first
        const Entry* entry;

        bool holds(const Spelling& word, uint32_t own) const {
            return own == word.shape() && mark == word.mark() &&
                   (word.is_short() || std::memcmp(entry->spelling(), word.bytes(), 8 * word.n_words()) == 0);
        }
    };

    explicit Known(size_t most = MOST) : most_(most), slots_(new Slot[2 * most]) {}
    // Its slot; null if the word is not stored.
    const Slot* find(const Spelling& word) const {
        return find(word.hash(), [&](const Slot& slot, uint32_t shape) { return slot.holds(word, shape); });
    }
    // The same for a short word, given by its hash and mark.
    const Slot* find(uint64_t hash, uint32_t own, uint64_t mark) const {
        return find(hash, [=](const Slot& slot, uint32_t shape) { return shape == own && slot.mark == mark; });
    }
    // Prefetches the memory that `find` needs.
    void expect(uint64_t hash) const { __builtin_prefetch(&slots_[first_slot(hash)]); }
    // The word's slot, which another thread may have added first; null if the table is full. There is at least one key.
    const Slot* add(const Spelling& word, const std::vector<Piece>& pieces, const std::vector<int64_t>& keys);
    bool full() const {
        return size_.load(std::memory_order_relaxed) >= most_ || bytes_.load(std::memory_order_relaxed) >= MOST_BYTES;
    }

  private:
    static constexpr size_t CHUNK = 1 << 16;
    size_t first_slot(uint64_t hash) const { return hash >> 32 & (2 * most_ - 1); }
    template <class Holds>
    const Slot* find(uint64_t hash, Holds&& holds) const {
        for (size_t at = first_slot(hash);; at = (at + 1) & (2 * most_ - 1)) {
            const uint32_t shape = slots_[at].shape.load(std::memory_order_acquire);
            if (shape == 0) return nullptr;
            if (holds(slots_[at], shape)) return &slots_[at];
        }
    }
    const Entry* entry_of(const Spelling& word, const std::vector<Piece>& pieces, const std::vector<int64_t>& keys);
    std::byte* room(size_t bytes);

    const size_t most_;
    std::unique_ptr<Slot[]> slots_;
    std::vector<std::unique_ptr<std::byte[]>> chunks_;
    std::byte* next_ = nullptr;  // free room in the newest chunk
    size_t left_ = 0;
    std::atomic<size_t> size_{0}, bytes_{0};
    std::mutex adding_;
};

// Known words, renewed when they are full.
class Memory {
  public:
    explicit Memory(size_t most = Known::MOST) : most_(most), known_(std::make_shared<Known>(most)) {}
    std::shared_ptr<Known> known() const {
        std::lock_guard lock(renewing_);
        if (known_->full()) known_ = std::make_shared<Known>(most_);  // threads that read the old one keep it until they are done
        return known_;
    }

  private:
    const size_t most_;
    mutable std::shared_ptr<Known> known_;
    mutable std::mutex renewing_;
};

}  // namespace keyblock
