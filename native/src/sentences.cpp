#include "sentences.hpp"

#include <algorithm>

namespace keyblock {
namespace {

constexpr size_t LONGEST_SHORT = 6;  // LONGEST of keyblock.text.sentences

template <class Unit>
class Finder {
  public:
    Finder(const Sentences& by, View<Unit> text) : by_(by), text_(text), capitals_(!is_lower()) {}

    std::vector<int32_t> run(const std::vector<int32_t>& marks) {
        for (const int32_t mark : marks) {
            const auto at = static_cast<size_t>(mark);
            switch (by_neighbours(at, sign(at))) {
                case ENDED: end(at + 1); break;
                case DOUBTED:
                    if (at >= past_) look(at);
                    break;
                case GOES_ON: break;
            }
        }
        if (!broken_) found_.insert(found_.end(), doubtful_.begin(), doubtful_.end());
        std::sort(found_.begin(), found_.end());
        found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
        return std::move(found_);
    }

  private:
    enum Way { GOES_ON, ENDED, DOUBTED };

    bool is(size_t at, uint32_t flags) const { return at < text_.size && by_.characters.is(text_.data[at], flags); }
    Code code(size_t at) const { return text_.data[at]; }
    // Characters before and after a text count as blank; -1 is a very large number here.
    Sign sign(size_t at) const {
        return at < text_.size ? sign_of(by_.characters.flags(text_.data[at])) : BLANK;
    }
    bool letter(size_t at) const {
        const Sign found = sign(at);
        return found == UPPER_CASE || found == LOWER_CASE;
    }
    size_t over(size_t at, uint32_t flags) const {
        while (is(at, flags)) ++at;
        return at;
    }
    void end(size_t at) {
        if (at < text_.size) found_.push_back(static_cast<int32_t>(at));
    }

    bool is_lower() const {  // str.islower
        bool lower = false;
        for (size_t at = 0; at < text_.size; ++at) {
            if (is(at, CAPITAL)) return false;
            lower |= is(at, LOWER);
        }
        return lower;
    }

    Way by_neighbours(size_t at, Sign mark) const {
        const Sign before = sign(at - 1), after = sign(at + 1), then = sign(at + 2);
        bool word = mark == PERIOD;  // too long for an abbreviation
        for (size_t back = 1; word && back < LONGEST_SHORT; ++back) word = letter(at - back);
        const bool whole = word || (mark == ASK && letter(at - 1)) || (mark <= ASK && before == BLANK);
        if (whole && after == BLANK && then == UPPER_CASE) return ENDED;
        const bool within = letter(at + 1) || after == NUMERAL || (capitals_ && after == BLANK && then == LOWER_CASE);
        return within && mark <= ASK ? GOES_ON : DOUBTED;
    }

    void look(size_t at) {
        if (is(at, MARK)) {
            if (at > 0 && is(at - 1, MARK)) return;
            const size_t close = over(over(at, MARK), CLOSING);
            size_t next = text_.size;
            if (close < text_.size) {
                const size_t behind = over(close, WHITE);
                if (behind == close) return;
                next = over(behind, OPENING);
            }
            past_ = close;
            if (!goes_on(at, close, next)) end(close);
        } else if (is(at, FULL_STOP)) {
            past_ = over(over(at, FULL_STOP), CLOSING);
            end(past_);
        } else {
            past_ = over(at, WHITE);
            end_of_line(at);
        }
    }

    // Whether the sentence continues after the mark at `at`, closed at `close`, in the word that starts at `next`.
    bool goes_on(size_t at, size_t close, size_t next) const {
        if (next >= text_.size) return false;
        if (capitals_ && is(next, LOWER)) return true;
        if (close - at > 1 || code(at) != '.' || at == 0 || is(at - 1, WHITE)) return false;
        size_t start = at;
        while (start > 0 && at - start < LONGEST_SHORT && !is(start - 1, WHITE)) --start;
        while (start < at && is(start, OPENING)) ++start;
        return at - start < LONGEST_SHORT && abbreviates(start, at, next);
    }

    bool abbreviates(size_t start, size_t at, size_t next) const {
        const SentenceRules& rules = by_.rules;
        if (one_of(rules.titles, start, at)) return true;
        if (one_of(rules.before_numbers, start, at)) return is(next, DIGIT);
        const bool begins_line = start == 0 || is(start - 1, LINE_BREAK);
        if (begins_line && at - start == 1 && initials(start, at)) return true;  // "Q. What does it mean?"
        if (one_of(rules.names_go_on, start, at) || initials(start, at)) return !one_of(rules.beginners, next, over(next, WORD));
        return numbering(start, at) && begins_line;
    }

    bool one_of(const Strings& some, size_t start, size_t end) const {
        constexpr size_t MOST = 16;  // the words are shorter
        char word[MOST];
        if (start == end || end - start > MOST) return false;
        for (size_t at = start; at < end; ++at) {
            const Code lower = by_.characters.lower(code(at));
            if (lower >= 128) return false;
            word[at - start] = static_cast<char>(lower);
        }
        return some.count(std::string(word, end - start)) != 0;
    }

    bool initials(size_t start, size_t end) const {  // letters with periods between them
        if ((end - start) % 2 == 0) return false;
        for (size_t at = start; at < end; ++at) {
            const bool letter = is(at, WORD) && !is(at, DECIMAL) && code(at) != '_';
            if ((at - start) % 2 == 0 ? !letter : code(at) != '.') return false;
        }
        return true;
    }

    bool numbering(size_t start, size_t end) const {  // numbers of up to three figures with periods between them
        size_t figures = 0;
        for (size_t at = start; at < end; ++at) {
            if (is(at, DECIMAL)) {
                if (++figures > 3) return false;
            } else {
                if (code(at) != '.' || figures == 0) return false;
                figures = 0;
            }
        }
        return figures > 0;
    }

    // The line breaks and white space from `at` up to past_.
    void end_of_line(size_t at) {
        const size_t length = at - line_;
        line_ = past_;
        size_t breaks = 0;
        for (size_t i = at; i < past_; ++i) breaks += code(i) == '\n';
        if (breaks != 1 || length < WRAPPED_FROM || length > WRAPPED_TO || item(past_)) end(at);
        else if (is(past_, LOWER)) broken_ = true;
        else if (at < text_.size) doubtful_.push_back(static_cast<int32_t>(at));
    }

    // Whether an item of a list or a speaker's turn starts here.
    bool item(size_t at) const {
        if (is(at, BULLET)) return true;
        const size_t from = at < text_.size && code(at) == '(' ? at + 1 : at;
        size_t number = from;
        while (number - from < 3 && is(number, WORD)) ++number;
        if (number > from && number < text_.size && (code(number) == '.' || code(number) == ')') && is(number + 1, WHITE)) return true;
        size_t name = at;
        while (name - at < NAME_LENGTH && is(name, NAME)) ++name;
        return name > at && name < text_.size && code(name) == ':' && is(name + 1, WHITE);
    }

    const Sentences& by_;
    const View<Unit> text_;
    std::vector<int32_t> found_;
    std::vector<int32_t> doubtful_;  // ends of lines before a capital letter: they end sentences, unless lines are wrapped
    const bool capitals_;
    bool broken_ = false;
    size_t past_ = 0, line_ = 0;
};

}  // namespace

std::vector<int32_t> Sentences::ends(const Text& text, const std::vector<int32_t>& marks) const {
    return text.visit([&](auto view) { return Finder(*this, view).run(marks); });
}

}  // namespace keyblock
