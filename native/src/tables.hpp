// Tables with a row for each code point, which Python fills, and hash tables.
#pragma once
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text.hpp"

namespace keyblock {

constexpr Code CODES = 0x110000;

// A row of numbers for each code point, in pages; equal pages are stored once: 100 KB instead of 9 MB.
template <class Row>
class Paged {
  public:
    // row: gives the row of a code point.
    template <class Each>
    explicit Paged(Each&& row) {
        std::unordered_map<std::string, uint32_t> known;
        std::vector<Row> page(PAGE);
        for (Code first = 0; first < CODES; first += PAGE) {
            for (Code i = 0; i < PAGE; ++i) page[i] = row(first + i);
            std::string bytes(reinterpret_cast<const char*>(page.data()), PAGE * sizeof(Row));
            auto [place, added] = known.emplace(std::move(bytes), static_cast<uint32_t>(rows_.size()));
            if (added) rows_.insert(rows_.end(), page.begin(), page.end());
            firsts_.push_back(place->second);
        }
    }
    template <class Unit>
    const Row& operator[](Unit c) const {
        if (sizeof(Unit) == 1 || c < PAGE) return rows_[c];  // page 0 is the first one
        return rows_[firsts_[c / PAGE] + c % PAGE];
    }

  private:
    static constexpr Code PAGE = 256;
    std::vector<Row> rows_;
    std::vector<uint32_t> firsts_;
};

using Table = Paged<uint32_t>;

// Values by a number, in a hash table with open addressing.
template <class Value>
class HashTable {
  public:
    explicit HashTable(size_t most = 0) {  // the most values, if that is known
        size_t size = 2;
        while (size < 2 * most + 1) size *= 2;
        slots_.resize(size);
    }
    const Value* find(uint64_t key) const {
        const Slot& slot = slots_[place(key)];
        return slot.used ? &slot.value : nullptr;
    }
    // The key's value: `value` if it had none.
    Value& add(uint64_t key, Value value) {
        if (2 * (used_ + 1) > slots_.size()) grow();
        Slot& slot = slots_[place(key)];
        if (!slot.used) slot = {key, std::move(value), true}, ++used_;
        return slot.value;
    }

  private:
    struct Slot {
        uint64_t key = 0;
        Value value{};
        bool used = false;
    };
    // Where the key is, or else would be.
    size_t place(uint64_t key) const {
        size_t at = (key * 0x9E3779B97F4A7C15u) >> 20 & (slots_.size() - 1);
        while (slots_[at].used && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
        return at;
    }
    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (Slot& slot : old)
            if (slot.used) slots_[place(slot.key)] = std::move(slot);
    }
    std::vector<Slot> slots_;
    size_t used_ = 0;
};

// Unicode's combining classes, by which marks are sorted when a text is normalized: the top bits of a row of flags hold the classes
// of the first and of the last part of a character's normal form.
constexpr uint32_t FIRST_CLASS_SHIFT = 16, LAST_CLASS_SHIFT = 24;
constexpr uint32_t first_class(uint32_t flags) { return flags >> FIRST_CLASS_SHIFT & 0xFF; }
constexpr uint32_t last_class(uint32_t flags) { return flags >> LAST_CLASS_SHIFT; }

// The normal form of each character: one character, or several. Stored as steps from the code point, so that most pages are equal.
class Spellings {
  public:
    // `steps`: to be added to a code point; SEVERAL and more: the number of one of `several`.
    Spellings(Table steps, std::vector<std::vector<Code>> several) : steps_(std::move(steps)), several_(std::move(several)) {}

    // Calls `each` with the characters of the normal form of `c`.
    template <class Each>
    void spell(Code c, Each&& each) const {
        const uint32_t step = steps_[c];
        if (step - SEVERAL >= several_.size()) return each(c + step);
        for (Code one : several_[step - SEVERAL]) each(one);
    }
    static constexpr uint32_t SEVERAL = 0x80000000;

  private:
    Table steps_;
    std::vector<std::vector<Code>> several_;
};

}  // namespace keyblock
