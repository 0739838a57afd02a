#include "units.hpp"

#include <algorithm>

namespace keyblock {
namespace {

constexpr Code METASPACE = 0x2581;
constexpr size_t MARKS = 8;       // keyblock.text.units.MARKS
constexpr Code THREE_BYTES = 0x800;  // characters from here on take at least three bytes

bool is_newline(Code c) { return c == '\n' || c == '\r'; }

}  // namespace

// The normalized characters of a unit, and the character of the unit that each comes from.
struct UnitReader::Symbols {
    Codes codes;
    std::vector<int32_t> places;

    void clear() { codes.clear(), places.clear(); }
    void add(Code c, int32_t place) { codes.push_back(c), places.push_back(place); }
};

// The end of the unit that starts here: keyblock.text.units.Borders.
template <class Unit>
size_t UnitReader::unit_end(View<Unit> text, size_t start) const {
    uint32_t before = 0;  // of a mark: COMBINING, and SOLID if its base character is
    for (size_t at = start; at < text.size;) {
        uint32_t sort = sorts_[text.data[at]];
        if ((sort & (BLANK_SPACE | SOLID | COMBINING)) == COMBINING) sort |= before & SOLID;
        if (at > start && rules_.words_end && (sort & OF_OTHERS) && (before & OF_LETTERS)) return at;
        if (!(sort & BLANK_SPACE)) {
            before = sort, ++at;
            continue;
        }
        size_t next = at + 1;
        while (next < text.size && (sorts_[text.data[next]] & BLANK_SPACE)) ++next;
        const bool apart = !rules_.breaks_join || !is_newline(text.data[at]) || (before & (OF_LETTERS | OF_NUMBERS));
        if (at > start && (before & SOLID) && apart && next < text.size && (sorts_[text.data[next]] & SOLID)) return at;
        before = BLANK_SPACE, at = next;
    }
    return text.size;
}

template <class Unit>
bool UnitReader::ends_solid(View<Unit> text, size_t end) const {
    for (size_t back = 1; back <= std::min(end, MARKS); ++back) {
        const uint32_t sort = sorts_[text.data[end - back]] & (BLANK_SPACE | SOLID | COMBINING);
        if (sort != COMBINING) return (sort & SOLID) != 0;
    }
    return false;
}

// The symbols of a unit; false if only the tokenizer can find them.
template <class Unit>
bool UnitReader::spell(View<Unit> unit, Symbols& into) const {
    into.clear();
    if (model_ == nullptr) return false;
    uint32_t before = 0;
    for (size_t i = 0; i < unit.size; ++i) {
        const Code c = unit.data[i];
        const uint32_t sort = sorts_[c];
        if (sort & BEGINS_ADDED) {
            for (const Codes& token : rules_.added)
                if (token.size() <= unit.size - i && std::equal(token.begin(), token.end(), unit.data + i)) return false;
        }
        const auto place = static_cast<int32_t>(i);
        if (sort & BLANK_SPACE) {
            const bool dropped = rules_.bytes.empty() && !rules_.keeps_space && into.codes.empty();  // before a word
            if (rules_.bytes.empty() && !dropped && (i > 0 || c != ' ')) return false;
            if (!dropped) into.add(c, place);
        } else if (sort & PLAIN) {
            if ((first_class(sort) != 0 && last_class(before) > first_class(sort)) || (rules_.joins && (sort & MARK_CLASS) && i > 0 && (c < THREE_BYTES || unit.data[i - 1] < THREE_BYTES))) return false;
            normal_.spell(c, [&](Code one) { into.add(one, place); });
        } else {
            return false;
        }
        before = sort;
    }
    return !into.codes.empty() && (!rules_.bytes.empty() || into.codes.back() != ' ');
}

bool UnitReader::cut(const Symbols& unit, bool first, std::vector<Piece>& found) const {
    const size_t n_found = found.size();
    const bool known = rules_.bytes.empty() ? cut_words(unit, first, found) : cut_bytes(unit, first, found);
    if (!known) found.resize(n_found);
    return known;
}

// Words of SentencePiece.
bool UnitReader::cut_words(const Symbols& unit, bool first, std::vector<Piece>& found) const {
    static thread_local Symbols word;
    const size_t size = unit.codes.size();
    const auto alone = [&](size_t i) { return rules_.marks_alone && (sorts_[unit.codes[i]] & PUNCTUATION); };
    for (size_t start = 0, end; start < size; start = end) {
        end = start + 1;
        if (!alone(start))
            while (end < size && !alone(end)) ++end;
        word.clear();
        if (unit.codes[start] == ' ') word.add(METASPACE, unit.places[start]);
        else {
            if (rules_.mark_each || (rules_.mark_first && first && start == 0)) word.add(METASPACE, unit.places[start]);
            word.add(unit.codes[start], unit.places[start]);
        }
        for (size_t i = start + 1; i < end; ++i) word.add(unit.codes[i], unit.places[i]);
        const size_t n_found = found.size();
        if (!model_->cut(word.codes.data(), word.codes.size(), found)) return false;
        for (size_t i = n_found; i < found.size(); ++i)
            found[i].head = word.places[static_cast<size_t>(found[i].head)], found[i].tail = word.places[static_cast<size_t>(found[i].tail) - 1] + 1;
    }
    return true;
}

// Words of bytes.
bool UnitReader::cut_bytes(const Symbols& unit, bool first, std::vector<Piece>& found) const {
    static thread_local Symbols text, word;
    const bool prefixed = rules_.prefix && first && unit.codes[0] != ' ';
    if (prefixed) {
        text.clear();
        text.add(' ', 0);
        text.codes.insert(text.codes.end(), unit.codes.begin(), unit.codes.end());
        text.places.insert(text.places.end(), unit.places.begin(), unit.places.end());
    }
    const Symbols& all = prefixed ? text : unit;
    for (size_t start = 0, end; start < all.codes.size(); start = end) {
        end = word_end(all.codes, start);
        word.clear();
        for (size_t i = start; i < end; ++i) {
            uint8_t bytes[4];
            const size_t n = utf8(all.codes[i], bytes);
            for (size_t k = 0; k < n; ++k) word.add(rules_.bytes[bytes[k]], all.places[i]);
        }
        const size_t n_found = found.size();
        if (!model_->cut(word.codes.data(), word.codes.size(), found)) return false;
        for (size_t i = n_found; i < found.size(); ++i) {
            auto first_symbol = static_cast<size_t>(found[i].head), last_symbol = static_cast<size_t>(found[i].tail) - 1;
            found[i].head = word.places[first_symbol], found[i].tail = word.places[last_symbol] + 1;
            if (!rules_.trim) continue;
            const Code space = rules_.bytes[' '];
            for (size_t k = first_symbol; k <= last_symbol && word.codes[k] == space; ++k) found[i].head = std::min(found[i].head + 1, found[i].tail);
            for (size_t k = last_symbol + 1; k > first_symbol && word.codes[k - 1] == space; --k) found[i].tail = std::max(found[i].tail - 1, found[i].head);
        }
    }
    return true;
}

// The end of the first word from `start` on, by the expressions GPT_2 and WITH_NEWLINES of keyblock.text.units, branch by branch.
size_t UnitReader::word_end(const Codes& codes, size_t start) const {
    const size_t size = codes.size();
    const uint32_t letters = LETTER_CLASS | (rules_.marks_in_words ? uint32_t{MARK_CLASS} : 0);
    const auto sort = [&](size_t at) { return at < size ? sorts_[codes[at]] : uint32_t{BLANK_SPACE}; };
    const auto is = [&](size_t at, uint32_t some) { return (sort(at) & some) != 0; };
    const auto other = [&](size_t at) { return !is(at, BLANK_SPACE | letters | NUMBER_CLASS); };
    const auto run = [&](size_t at, uint32_t some, size_t most) {
        const size_t first = at;
        while (at < size && at - first < most && is(at, some)) ++at;
        return at;
    };
    if (codes[start] == '\'') {
        const auto lower = [&](size_t at) {
            const Code c = at < size ? codes[at] : 0;
            return rules_.newlines_join && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
        };
        const Code one = lower(start + 1), two = lower(start + 2);
        if (one == 's' || one == 't' || one == 'm' || one == 'd') return start + 2;
        if ((one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l')) return start + 3;
    }
    const bool space = codes[start] == ' ';
    if (rules_.newlines_join) {
        if (is(start, letters)) return run(start, letters, size);
        if (!is_newline(codes[start]) && !is(start, LETTER_CLASS | NUMBER_CLASS) && is(start + 1, letters)) return run(start + 1, letters, size);
        if (is(start, NUMBER_CLASS)) return run(start, NUMBER_CLASS, rules_.digits);
    } else {
        const size_t begin = space ? start + 1 : start;
        for (uint32_t some : {LETTER_CLASS, NUMBER_CLASS})
            if (begin < size && is(begin, some)) return run(begin, some, size);
    }
    size_t end = space ? start + 1 : start;
    if (end < size && other(end)) {
        while (end < size && other(end)) ++end;
        while (rules_.newlines_join && end < size && is_newline(codes[end])) ++end;
        return end;
    }
    end = run(start, BLANK_SPACE, size);
    if (rules_.newlines_join)
        for (size_t at = end; at > start; --at)
            if (is_newline(codes[at - 1])) return at;
    return end < size && end - start > 1 ? end - 1 : end;
}

template <class Unit>
struct UnitReader::Call {
    Call(const UnitReader& by, View<Unit> text, const Odds& given, Reading& found) : by(by), text(text), given(given), found(found) {}

    const UnitReader& by;
    const View<Unit> text;
    const Odds& given;
    Reading& found;
    std::shared_ptr<Known> known = by.memory_.known();
    Spelling name{};
    Symbols symbols{};
    std::vector<Piece> pieces{};

    void run() {
        for (size_t start = 0, end; start < text.size; start = end) {
            end = by.unit_end(text, start);
            const bool changes = start > 0 && end == text.size && !by.ends_solid(text, end);
            unit(start, end, start == 0 ? FIRST_TOKENS : changes ? LAST_TOKENS : TOKENS);
        }
    }

    void unit(size_t start, size_t end, Asked asked) {
        const size_t extra = asked == TOKENS ? 0 : 1;
        const bool is_short = end - start + extra <= LONGEST;
        if (is_short) {
            name.set(text.data + start, end - start, asked);
            if (const Known::Slot* slot = known->find(name)) return add(*slot, start, end);
        }
        pieces.clear();
        if (by.spell(View<Unit>{text.data + start, end - start}, symbols) && by.cut(symbols, asked == FIRST_TOKENS, pieces)) {
            if (is_short) known->add(name, pieces, NO_KEYS);
            return add(pieces.data(), pieces.size(), start);
        }
        const auto place = given.find(name_of(asked, text.data + start, text.data + end));
        if (place == given.end()) return found.ask(start, end, asked);
        if (is_short) known->add(name, place->second.pieces, NO_KEYS);
        add(place->second.pieces.data(), place->second.pieces.size(), start);
    }

    void add(const Known::Slot& slot, size_t start, size_t end) {
        const Piece whole{slot.id, 0, static_cast<int32_t>(end - start)};
        if (slot.entry != nullptr) add(slot.entry->pieces(), slot.entry->n_pieces, start);
        else add(&whole, 1, start);
    }

    void add(const Piece* some, size_t n, size_t start) {
        const auto from = static_cast<int32_t>(start);
        for (size_t i = 0; i < n; ++i) found.tokens.push_back({some[i].id, from + some[i].head, from + some[i].tail});
    }

    static inline const std::vector<int64_t> NO_KEYS{0};
};

void UnitReader::read(const Text& text, const Odds& given, Reading& found) const {
    text.visit([&](auto view) { Call(*this, view, given, found).run(); });
}

}  // namespace keyblock
