// The lines of a text and the properties of each: keyblock.text.structure, whose regular expressions are written out here.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "sentences.hpp"

namespace keyblock {

constexpr size_t LONG_WRAPPED_TO = 199;  // beyond WRAPPED_TO: lengths of a line that an editor may have wrapped

// A line without the white space around it: not empty. Each question takes time proportional to its length.
template <class Unit>
class Body {
  public:
    Body(const Characters& characters, const Unit* data, size_t size) : characters_(&characters), data_(data), size_(size) {}

    size_t size() const { return size_; }
    bool starts_with(char c) const { return code(0) == static_cast<Code>(c); }
    bool is_lower() const { return is(0, LOWER); }
    bool is_fence() const { return starts_with("```") || starts_with("~~~"); }

    // Marks without a space after them.
    int32_t fields(char mark) const {
        const auto own = static_cast<Unit>(mark), space = static_cast<Unit>(' ');
        int32_t n = data_[size_ - 1] == own;
        for (size_t at = 0; at + 1 < size_; ++at) n += (data_[at] == own) & (data_[at + 1] != space);
        return n;
    }

    // Whether something new starts here: a heading, an item of a list, a row, a record of JSON, a speaker's turn (_BEGINS).
    bool begins() const {
        if (is_one_of(code(0), "|{[") || (is(0, ITEM_MARK) && is(1, WHITE))) return true;
        return is_heading() || is_numbered() || is_turn();
    }

    // Whether it belongs to the text after it: a heading, its underline, a head of a table, a decorator (_OPENS).
    bool opens() const { return is_heading() || underlines() || is_decorator(); }

    bool underlines() const {  // _UNDERLINES
        if (size_ >= 3 && (over(0, "=") == size_ || over(0, "-") == size_)) return true;
        if (size_ < 2 || !starts_with('|')) return false;
        size_t end = 1;
        while (is(end, WHITE) || (end < size_ && is_one_of(code(end), ":|-"))) ++end;
        return end == size_;
    }

    bool closes() const {  // _CLOSES
        const size_t brackets = over(0, "}])");
        if (brackets > 0) return brackets + is_one_of(code(brackets), ",;") == size_;
        if (starts_with("</")) return until(2, '>') == size_ - 1;
        return (size_ == 3 && is_fence()) || (starts_with("end") && 3 + (code(3) == ';') == size_);
    }

    // Whether it looks like a statement of code (_STATEMENT).
    bool is_statement() const {
        return is_one_of(last(), ")]};") || is_command() || is_import() || opens_block() || is_decorator() || assigns() || calls();
    }

    bool is_unfinished() const { return is_one_of(last(), "([{,\\"); }

    // Whether a line of prose may continue in the next line.
    bool is_wrapped() const { return size_ >= WRAPPED_FROM && (is(size_ - 1, ALPHABETIC) || last() == ','); }
    bool is_wrapped_late() const { return size_ > WRAPPED_TO && size_ <= LONG_WRAPPED_TO && is_wrapped(); }

  private:
    static bool is_one_of(Code c, std::string_view some) { return c < 128 && some.find(static_cast<char>(c)) != some.npos; }

    bool is(size_t at, uint32_t flags) const { return at < size_ && characters_->is(data_[at], flags); }
    Code code(size_t at) const { return at < size_ ? data_[at] : NONE; }
    Code last() const { return data_[size_ - 1]; }
    bool starts_with(std::string_view word) const {
        for (size_t at = 0; at < word.size(); ++at)
            if (code(at) != static_cast<Code>(word[at])) return false;
        return true;
    }
    // The first place from `at` on whose character is none of these.
    size_t over(size_t at, std::string_view some) const {
        while (is_one_of(code(at), some)) ++at;
        return at;
    }
    // The first place of the character from `at` on; the end if there is none.
    size_t until(size_t at, char c) const {
        while (at < size_ && code(at) != static_cast<Code>(c)) ++at;
        return at;
    }

    bool is_heading() const {
        const size_t end = over(0, "#");
        return end >= 1 && end <= 6 && is(end, WHITE);
    }

    bool is_numbered() const {  // \(?\w{1,3}[.)]\s
        const size_t from = starts_with('(');
        size_t end = from;
        while (end - from < 3 && is(end, WORD)) ++end;
        return end > from && is_one_of(code(end), ".)") && is(end + 1, WHITE);
    }

    bool is_turn() const {  // TURN: a name has no colon, so the colon follows the whole name
        if (!is(0, WORD) || is(0, DECIMAL) || code(0) == '_') return false;
        size_t end = 1;
        while (end < NAME_LENGTH && is(end, NAME)) ++end;
        return (code(end) == ':' && is(end + 1, WHITE)) || is(end, WIDE_COLON);
    }

    bool is_decorator() const { return starts_with('@') && is(1, WORD); }

    bool is_command() const {
        for (std::string_view word : {"return", "yield", "raise", "await", "import", "const", "let", "var"})
            if (starts_with(word)) return is(word.size(), WHITE);
        return false;
    }

    bool is_import() const {  // from\s\S+\simport\s
        if (!starts_with("from") || !is(4, WHITE)) return false;
        size_t end = 5;
        while (end < size_ && !is(end, WHITE)) ++end;
        return end > 5 && end < size_ && Body(*characters_, data_ + end + 1, size_ - end - 1).starts_with("import") && is(end + 7, WHITE);
    }

    bool opens_block() const {
        if (!is_one_of(last(), ":{")) return false;
        for (std::string_view word : {"if", "for", "while", "with", "def", "class", "async", "else", "try"})
            if (starts_with(word)) return !is(word.size(), WORD);
        return false;
    }

    bool assigns() const {  // [\w.\[\]"'*, ]{1,60}\s[-+*/|&]?=\s: the white space may be one of the spaces before it
        for (size_t at = 0; at < 60 && (is(at, WORD) || is_one_of(code(at), ".[]\"'*, ")); ++at) {
            if (!is(at + 1, WHITE)) continue;
            const size_t sign = at + 2 + is_one_of(code(at + 2), "-+*/|&");
            if (code(sign) == '=' && is(sign + 1, WHITE)) return true;
        }
        return false;
    }

    bool calls() const {  // [\w.]+\(
        size_t end = 0;
        while (is(end, WORD) || code(end) == '.') ++end;
        return end > 0 && code(end) == '(';
    }

    const Characters* characters_;
    const Unit* data_;
    size_t size_;
};

// keyblock.text.structure.Line: a line that is not blank.
template <class Unit>
struct Line {
    int32_t start, end;
    size_t indent;
    Body<Unit> body;
    std::array<int32_t, 3> fields;
    bool opens, blank, fenced;

    bool is_code() const { return fenced || body.is_statement(); }
};

// Iterates over the lines of a text that are not blank.
template <class Unit>
class Lines {
  public:
    // marks: places of the characters that may end a sentence, ascending; line breaks are among them.
    Lines(const Characters& characters, View<Unit> text, const std::vector<int32_t>& marks)
        : characters_(characters), text_(text), marks_(marks) {}

    // Calls `each` with every line.
    template <class Each>
    void visit(Each&& each) {
        size_t start = 0;
        for (const int32_t mark : marks_) {
            const auto at = static_cast<size_t>(mark);
            if (!characters_.is(text_.data[at], LINE_BREAK)) continue;
            if (at > start) visit(start, at, each);
            start = at + 1;
        }
        if (text_.size > start) visit(start, text_.size, each);
    }

  private:
    template <class Each>
    void visit(size_t start, size_t end, Each&& each) {
        blank_ |= start > end_ + 1 && !is_one_break(end_, start);
        end_ = end;
        size_t head = start, tail = end;
        while (head < tail && is_white(head)) ++head;
        while (head < tail && is_white(tail - 1)) --tail;
        if (head == tail) {
            blank_ = true;
            return;
        }
        const Body<Unit> body(characters_, text_.data + head, tail - head);
        const bool fence = body.is_fence(), opens = (fence && !fenced_) || body.opens();
        each(Line<Unit>{static_cast<int32_t>(start), static_cast<int32_t>(end), head - start, body,
                        {body.fields(','), body.fields(';'), body.fields('\t')}, opens, blank_, fenced_});
        fenced_ ^= fence, blank_ = false;
    }

    bool is_white(size_t at) const { return characters_.is(text_.data[at], WHITE); }
    bool is_one_break(size_t from, size_t to) const {  // \r\n
        return to - from == 2 && text_.data[from] == '\r' && text_.data[from + 1] == '\n';
    }

    const Characters& characters_;
    const View<Unit> text_;
    const std::vector<int32_t>& marks_;
    size_t end_ = 0;  // of the line before, which may be blank
    bool blank_ = false, fenced_ = false;
};

}  // namespace keyblock
