#include <string_view>

#include "terms.hpp"

namespace keyblock {
namespace {

using Letters = std::string_view;

struct Suffix {
    Letters suffix, instead;
};

// In each step the longest suffix counts, so a suffix precedes the suffixes that it ends with.
constexpr Suffix STEP_2[] = {
    {"ational", "ate"}, {"ization", "ize"}, {"fulness", "ful"}, {"ousness", "ous"}, {"iveness", "ive"},
    {"tional", "tion"}, {"biliti", "ble"},  {"entli", "ent"},   {"ation", "ate"},   {"alism", "al"},
    {"aliti", "al"},    {"ousli", "ous"},   {"iviti", "ive"},   {"enci", "ence"},   {"anci", "ance"},
    {"abli", "able"},   {"izer", "ize"},    {"ator", "ate"},    {"alli", "al"},     {"eli", "e"},
};
constexpr Suffix STEP_3[] = {
    {"alize", "al"}, {"icate", "ic"}, {"iciti", "ic"}, {"ative", ""}, {"ical", "ic"}, {"ness", ""}, {"ful", ""},
};
constexpr Suffix STEP_4[] = {
    {"ement", ""}, {"ance", ""}, {"ence", ""}, {"able", ""}, {"ible", ""}, {"ment", ""}, {"ant", ""},
    {"ent", ""},   {"ism", ""},  {"ate", ""},  {"iti", ""},  {"ous", ""},  {"ive", ""},  {"ize", ""},
    {"ion", ""},   {"al", ""},   {"er", ""},   {"ic", ""},   {"ou", ""},
};

// A set of ASCII letters, a bit for each.
class LetterSet {
  public:
    constexpr explicit LetterSet(Letters some) {
        for (char c : some) bits_ |= bit(static_cast<Code>(c));
    }
    constexpr bool has(Code c) const { return c >= 'A' && c <= 'z' && (bits_ & bit(c)) != 0; }

  private:
    static constexpr uint64_t bit(Code c) { return uint64_t{1} << (c - 'A'); }
    uint64_t bits_ = 0;
};
constexpr LetterSet VOWELS("aeiouy"), NO_SHORT_END("aeiouywxY"), DOUBLED("bdfgmnprt"), BEFORE_ION("st");

bool vowel(Code c) { return VOWELS.has(c); }  // a y that is a consonant is written Y

struct Word {
    Code* at;
    size_t size;
    size_t first = 0, second = 0;  // where Snowball's regions R1 and R2 start

    bool ends(Letters suffix) const {
        const size_t length = suffix.size();
        if (length > size || at[size - 1] != static_cast<Code>(suffix.back())) return false;
        for (size_t i = 0; i + 1 < length; ++i)
            if (at[size - length + i] != static_cast<Code>(suffix[i])) return false;
        return true;
    }
    size_t without(Letters suffix) const { return size - suffix.size(); }
    void replace(Letters suffix, Letters instead) {
        size = without(suffix);
        for (char c : instead) at[size++] = static_cast<Code>(c);
    }
    bool vowel_before(size_t end) const {
        for (size_t i = 0; i < end; ++i)
            if (vowel(at[i])) return true;
        return false;
    }
    // Whether the text before `end` ends with a consonant, a vowel and a consonant other than w, x and Y.
    bool short_before(size_t end) const {
        return end >= 3 && !NO_SHORT_END.has(at[end - 1]) && vowel(at[end - 2]) && !vowel(at[end - 3]);
    }
    // The first place after a vowel and a consonant that follows it.
    size_t region(size_t from) const {
        while (from < size && !vowel(at[from])) ++from;
        while (from < size && vowel(at[from])) ++from;
        return from < size ? from + 1 : size;
    }
    template <size_t n>
    const Suffix* longest(const Suffix (&some)[n]) const {
        for (const Suffix& one : some)
            if (ends(one.suffix)) return &one;
        return nullptr;
    }
};

bool mark_consonants(Word& word) {
    bool found = false;
    if (word.size > 0 && word.at[0] == 'y') {
        word.at[0] = 'Y';
        found = true;
    }
    for (size_t i = 1; i < word.size; ++i)
        if (word.at[i] == 'y' && vowel(word.at[i - 1])) {
            word.at[i] = 'Y';
            found = true;
        }
    return found;
}

void plurals(Word& word) {
    if (word.ends("sses")) word.size -= 2;
    else if (word.ends("ies")) word.size -= 2;
    else if (!word.ends("ss") && word.ends("s")) word.size -= 1;
}

void past_and_progressive(Word& word) {
    if (word.ends("eed")) {
        if (word.first <= word.size - 3) word.size -= 1;
        return;
    }
    const Letters suffix = word.ends("ed") ? "ed" : word.ends("ing") ? "ing" : "";
    if (suffix.empty() || !word.vowel_before(word.without(suffix))) return;
    word.replace(suffix, "");
    const size_t size = word.size;
    if (word.ends("at") || word.ends("bl") || word.ends("iz")) word.at[word.size++] = 'e';
    else if (size >= 2 && word.at[size - 1] == word.at[size - 2] && DOUBLED.has(word.at[size - 1])) word.size -= 1;
    else if (size == word.first && word.short_before(size)) word.at[word.size++] = 'e';
}

void last_letters(Word& word) {
    if (word.ends("e")) {
        const size_t end = word.size - 1;
        if (word.second <= end || (word.first <= end && !word.short_before(end))) word.size = end;
    }
    if (word.ends("ll") && word.second <= word.size - 1) word.size -= 1;
}

}  // namespace

size_t porter(Code* at, size_t size) {
    Word word{at, size};
    const bool marked = mark_consonants(word);
    word.first = word.region(0);
    word.second = word.region(word.first);
    plurals(word);
    past_and_progressive(word);
    if ((word.ends("y") || word.ends("Y")) && word.vowel_before(word.size - 1)) at[word.size - 1] = 'i';
    if (const Suffix* found = word.longest(STEP_2); found && word.first <= word.without(found->suffix))
        word.replace(found->suffix, found->instead);
    if (const Suffix* found = word.longest(STEP_3); found && word.first <= word.without(found->suffix))
        word.replace(found->suffix, found->instead);
    if (const Suffix* found = word.longest(STEP_4); found && word.second <= word.without(found->suffix)) {
        const size_t end = word.without(found->suffix);
        if (found->suffix != "ion" || (end > 0 && BEFORE_ION.has(at[end - 1]))) word.size = end;
    }
    last_letters(word);
    if (marked)
        for (size_t i = 0; i < word.size; ++i)
            if (at[i] == 'Y') at[i] = 'y';
    return word.size;
}

}  // namespace keyblock
