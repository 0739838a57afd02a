#include "structure.hpp"

#include <algorithm>
#include <optional>

#include "lines.hpp"

namespace keyblock {
namespace {

template <class Unit>
class Finder {
  public:
    Finder(const Sentences& sentences, View<Unit> text) : sentences_(sentences), characters_(sentences.characters), text_(text) {}

    std::vector<Cut> cuts(const std::vector<int32_t>& marks) {
        find_parts(marks);
        std::vector<Cut> found = ends_of_sentences(marks);
        merge(found, parts_);
        merge(found, ends_of_records());
        const auto alike = [](Cut one, Cut other) { return one.place == other.place; };  // the least kind is the first
        found.erase(std::unique(found.begin(), found.end(), alike), found.end());
        return found;
    }

    std::vector<int32_t> clauses() const {  // _CLAUSE
        std::vector<int32_t> found;
        for (size_t at = 0; at < text_.size; ++at) {
            if (text_.data[at] == ' ') {
                if (is(at + 1, PHRASED) && at > 0 && is(at - 1, PHRASED)) found.push_back(static_cast<int32_t>(at + 1));
            } else if (is(at, PAUSE | COMMA)) {
                const size_t end = clause_end(at);
                if (end > at) found.push_back(static_cast<int32_t>(end)), at = end - 1;
            }
        }
        return found;
    }

  private:
    struct Row {
        int32_t start, end;
    };

    bool is(size_t at, uint32_t flags) const { return at < text_.size && characters_.is(text_.data[at], flags); }
    size_t over(size_t at, uint32_t flags) const {
        while (is(at, flags)) ++at;
        return at;
    }
    bool is_one_of(size_t at, const char* some) const {
        for (; at < text_.size && *some != 0; ++some)
            if (text_.data[at] == static_cast<Code>(*some)) return true;
        return false;
    }

    // The end of the clause that the mark at `at` may end; `at` itself if it ends none.
    size_t clause_end(size_t at) const {
        if (is(at, COMMA)) return over(over(at, COMMA), CLOSING);
        const size_t closed = over(at + 1, CLOSING);
        if (is(closed, WHITE)) return closed;
        const bool between_values = text_.data[at] == ',' && is_one_of(at + 1, "\"{[") && at > 0 && (is_one_of(at - 1, "\"]}") || is(at - 1, DECIMAL));
        return between_values ? at + 1 : at;
    }

    // The ends of sentences, which inside rows cost as much as clauses.
    std::vector<Cut> ends_of_sentences(const std::vector<int32_t>& marks) const {
        std::vector<int32_t> ends = sentences_.ends(text_, marks);
        const auto n_usual = static_cast<std::ptrdiff_t>(ends.size());
        other_ends(ends);
        std::inplace_merge(ends.begin(), ends.begin() + n_usual, ends.end());
        std::vector<Cut> found;
        size_t row = 0;
        for (const int32_t end : ends) {
            while (row < rows_.size() && rows_[row].end <= end) ++row;
            const bool within = row < rows_.size() && rows_[row].start <= end;
            if (end > 0) found.push_back({end, within ? CLAUSE_CUT : SENTENCE_CUT});  // a line break at the very start ends nothing
        }
        return found;
    }

    // Appends where sentences end after a full stop that Sentences does not know.
    void other_ends(std::vector<int32_t>& found) const {
        for (size_t at = 0; at < text_.size; ++at) {
            if (!is(at, OTHER_STOP)) continue;
            const size_t end = over(over(at, OTHER_STOP), CLOSING);
            found.push_back(static_cast<int32_t>(end)), at = end - 1;
        }
    }

    // The ends of JSON records in one line (_RECORD).
    std::vector<Cut> ends_of_records() const {
        std::vector<Cut> found;
        for (size_t at = 1; at < text_.size; ++at)
            if (text_.data[at] == ',' && is_one_of(at - 1, "}]") && is_one_of(over(at + 1, WHITE), "{["))
                found.push_back({static_cast<int32_t>(at + 1), FREE_CUT});
        return found;
    }

    static void merge(std::vector<Cut>& found, const std::vector<Cut>& more) {
        const auto n = static_cast<std::ptrdiff_t>(found.size());
        found.insert(found.end(), more.begin(), more.end());
        const auto before = [](Cut one, Cut other) { return one.place != other.place ? one.place < other.place : one.kind < other.kind; };
        std::inplace_merge(found.begin(), found.begin() + n, found.end(), before);
    }

    // The ends of lines where the text's structure decides the kind of cut; and where rows and records start and end.
    void find_parts(const std::vector<int32_t>& marks) {
        std::optional<Line<Unit>> before;
        Lines<Unit>(characters_, text_, marks).visit([&](const Line<Unit>& line) {
            const std::optional<CutKind> kind = before ? between(*before, line) : std::nullopt;
            if (kind) parts_.push_back({before->end, *kind});
            if (line.body.starts_with('|')) {
                rows_.push_back({line.start, line.end});
            } else if (before && are_records(*before, line)) {
                rows_.push_back({before->start, before->end});  // a second time if it was one already
                rows_.push_back({line.start, line.end});
            }
            before.emplace(line);
        });
    }

    // The kind of cut between two lines; none if the sentence decides.
    static std::optional<CutKind> between(const Line<Unit>& before, const Line<Unit>& line) {
        if (before.opens || line.body.underlines()) return NO_CUT;
        if (!line.blank && line.body.closes()) return line.fenced ? std::optional(NO_CUT) : std::nullopt;
        if (line.blank || line.body.begins() || line.body.is_fence() || before.body.is_fence()) return FREE_CUT;
        if (are_records(before, line) || (line.indent < before.indent && !before.body.is_wrapped())) return FREE_CUT;
        if (before.is_code() && line.is_code() && !before.body.is_unfinished()) return SENTENCE_CUT;
        return before.body.is_wrapped_late() && line.body.is_lower() ? std::optional(NO_CUT) : std::nullopt;
    }

    // Whether two lines have the same number of fields.
    static bool are_records(const Line<Unit>& before, const Line<Unit>& line) {
        for (size_t i = 0; i < line.fields.size(); ++i)
            if (line.fields[i] > 1 && line.fields[i] == before.fields[i]) return true;
        return false;
    }

    const Sentences& sentences_;
    const Characters& characters_;
    const View<Unit> text_;
    std::vector<Cut> parts_;
    std::vector<Row> rows_;
};

}  // namespace

std::vector<Cut> Structure::cuts(const Text& text, const std::vector<int32_t>& marks) const {
    return text.visit([&](auto view) { return Finder(sentences, view).cuts(marks); });
}

std::vector<int32_t> Structure::clauses(const Text& text) const {
    return text.visit([&](auto view) { return Finder(sentences, view).clauses(); });
}

}  // namespace keyblock
