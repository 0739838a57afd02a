// Tables with a row for each code point, in pages; equal pages are stored once. Python fills them.
#pragma once
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "text.hpp"

namespace keyblock {

// A table of numbers.
class Paged {
  public:
    explicit Paged(const uint32_t* rows) {
        std::unordered_map<std::string, uint32_t> known;
        for (Code first = 0; first < ROWS; first += PAGE) {
            std::string bytes(reinterpret_cast<const char*>(rows + first), PAGE * sizeof(uint32_t));
            auto [place, added] = known.emplace(std::move(bytes), static_cast<uint32_t>(rows_.size()));
            if (added) rows_.insert(rows_.end(), rows + first, rows + first + PAGE);
            firsts_.push_back(place->second);
        }
    }
    template <class Unit>
    uint32_t operator[](Unit c) const {
        if (sizeof(Unit) == 1) return rows_[c];  // page 0 is the first one
        return rows_[firsts_[c / PAGE] + c % PAGE];
    }
    static constexpr Code ROWS = 0x110000, PAGE = 256;

  private:
    std::vector<uint32_t> rows_, firsts_;
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
    Spellings(const uint32_t* steps, std::vector<std::vector<Code>> several) : steps_(steps), several_(std::move(several)) {}

    // Calls `each` with the characters of the normal form of `c`.
    template <class Each>
    void spell(Code c, Each&& each) const {
        const uint32_t step = steps_[c];
        if (step - SEVERAL >= several_.size()) return each(c + step);
        for (Code one : several_[step - SEVERAL]) each(one);
    }
    static constexpr uint32_t SEVERAL = 0x80000000;

  private:
    Paged steps_;
    std::vector<std::vector<Code>> several_;
};

}  // namespace keyblock
