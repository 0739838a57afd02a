// The Python interface of readers for SentencePiece and byte-level tokenizers, and for analyzers of any language.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_set.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <variant>

#include "bindings.hpp"
#include "runs.hpp"
#include "units.hpp"

namespace keyblock {
namespace {

using Table = Given<uint32_t>;

const uint32_t* rows_of(const Table& table) {
    if (table.size() != Paged::ROWS) throw nb::value_error("a table has not a row for each code point");
    return table.data();
}

std::vector<Codes> strings_of(const nb::list& strings) {
    std::vector<Codes> found;
    for (nb::handle string : strings) found.push_back(codes_of(string));
    return found;
}

void make_merges(Merges* self, const nb::dict& symbols, const std::vector<int32_t>& merges, const nb::dict& whole) {
    std::vector<std::pair<Code, int32_t>> single;
    std::vector<Merges::Merge> ranked;
    std::vector<std::pair<Codes, int32_t>> at_once;
    for (auto [symbol, id] : symbols) single.emplace_back(codes_of(symbol).at(0), nb::cast<int32_t>(id));
    for (size_t i = 0; i + 2 < merges.size(); i += 3) ranked.push_back({merges[i], merges[i + 1], merges[i + 2]});
    for (auto [spelling, id] : whole) at_once.emplace_back(codes_of(spelling), nb::cast<int32_t>(id));
    new (self) Merges(single, ranked, at_once);
}

void make_unigram(Unigram* self, const nb::list& spellings, const std::vector<double>& scores, int32_t unknown) {
    std::vector<Unigram::Token> vocabulary;
    if (scores.size() != spellings.size()) throw nb::value_error("scores are not one a token");
    for (size_t i = 0; i < scores.size(); ++i) vocabulary.push_back({codes_of(spellings[i]), scores[i]});
    new (self) Unigram(vocabulary, unknown);
}

// A text's tokens from one reader and its runs from another.
class TextReader {
  public:
    using Tokens = std::variant<const UnitReader*, const WordReader*>;

    TextReader(Tokens tokens, const RunReader& runs) : tokens_(tokens), runs_(runs) {}
    nb::list read(const nb::list& texts, const Odds& odds, const Odds& terms) const {
        return each<ReadText>(texts, [&](auto text, Reading& scratch) {
            read_one(text, odds, terms, scratch);
            return ReadText(scratch);
        });
    }
    nb::list cut(const nb::list& texts, const Segmenter& segmenter, const Odds& odds, const Odds& terms) const {
        return each<CutText>(texts, [&](auto text, Reading& scratch) {
            read_one(text, odds, terms, scratch);
            if (!scratch.missing.empty()) return CutText(scratch, {});
            const auto apart = [&](size_t start, size_t end, std::vector<int64_t>& found) {
                return runs_.keys_between(text, start, end, terms, found);
            };
            return CutText(scratch, blocks_between(scratch, apart, bounds_by(segmenter, text, scratch)));
        });
    }

  private:
    template <class Some>
    void read_one(Some text, const Odds& odds, const Odds& terms, Reading& scratch) const {
        scratch.clear();  // a text that was begun is read again
        std::visit([&](const auto* reader) { reader->read(text, odds, scratch); }, tokens_);
        scratch.runs.clear(), scratch.marks.clear();  // left by a reader of words
        runs_.read(text, terms, scratch);
    }

    Tokens tokens_;
    const RunReader& runs_;
};

}  // namespace

void bind_units(nb::module_& module) {
    nb::dict sorts, runs, asked;
    const std::pair<const char*, uint32_t> sort_bits[] = {
        {"PLAIN", PLAIN}, {"LETTER_CLASS", LETTER_CLASS}, {"NUMBER_CLASS", NUMBER_CLASS}, {"MARK_CLASS", MARK_CLASS},
        {"PUNCTUATION", PUNCTUATION}, {"BEGINS_ADDED", BEGINS_ADDED},
    };
    for (auto [name, bit] : sort_bits) sorts[name] = bit;
    const std::pair<const char*, uint32_t> run_bits[] = {{"IN_RUN", IN_RUN}, {"PAIRED", PAIRED}, {"ENDS_SENTENCE", ENDS_SENTENCE}, {"VANISHES", VANISHES}};
    for (auto [name, bit] : run_bits) runs[name] = bit;
    const std::pair<const char*, uint32_t> questions[] = {{"FIRST_TOKENS", FIRST_TOKENS}, {"LAST_TOKENS", LAST_TOKENS}, {"TERMS", TERMS}};
    for (auto [name, number] : questions) asked[name] = number;
    module.attr("SORTS") = sorts;
    module.attr("RUNS") = runs;
    module.attr("ASKED") = asked;
    module.attr("CLASS_SHIFTS") = nb::make_tuple(FIRST_CLASS_SHIFT, LAST_CLASS_SHIFT);
    module.attr("SEVERAL") = Spellings::SEVERAL;

    nb::class_<Spellings>(module, "Spellings")
        .def("__init__", [](Spellings* self, const Table& steps, const nb::list& several) {
            new (self) Spellings(rows_of(steps), strings_of(several));
        }, "steps"_a, "several"_a);
    nb::class_<Subwords>(module, "Subwords");
    nb::class_<Merges, Subwords>(module, "Merges").def("__init__", &make_merges, "symbols"_a, "merges"_a, "whole"_a);
    nb::class_<Unigram, Subwords>(module, "Unigram").def("__init__", &make_unigram, "spellings"_a, "scores"_a, "unknown"_a);
    nb::class_<UnitRules>(module, "UnitRules")
        .def(nb::init<>())
        .def_rw("breaks_join", &UnitRules::breaks_join).def_rw("words_end", &UnitRules::words_end)
        .def_rw("newlines_join", &UnitRules::newlines_join).def_rw("marks_in_words", &UnitRules::marks_in_words)
        .def_rw("digits", &UnitRules::digits).def_rw("prefix", &UnitRules::prefix).def_rw("trim", &UnitRules::trim)
        .def_rw("mark_each", &UnitRules::mark_each).def_rw("mark_first", &UnitRules::mark_first)
        .def_rw("keeps_space", &UnitRules::keeps_space).def_rw("marks_alone", &UnitRules::marks_alone).def_rw("joins", &UnitRules::joins);
    nb::class_<UnitReader>(module, "UnitReader")
        .def("__init__", [](UnitReader* self, const Table& sorts, const Spellings& normal, const UnitRules& rules, nb::str bytes,
                            const nb::list& added, const Subwords* model) {
            UnitRules all = rules;
            all.bytes = codes_of(bytes), all.added = strings_of(added);
            if (!all.bytes.empty() && all.bytes.size() != 256) throw nb::value_error("there is not a symbol for each byte");
            new (self) UnitReader(rows_of(sorts), normal, std::move(all), model);
        }, "sorts"_a, "normal"_a, "rules"_a, "bytes"_a, "added"_a, "model"_a.none(), nb::keep_alive<1, 7>());
    nb::class_<Analyzer>(module, "Analyzer");
    nb::class_<Universal, Analyzer>(module, "Universal").def(nb::init<Spellings>(), "folded"_a);
    nb::class_<English, Analyzer>(module, "English")
        .def(nb::init<const Characters&, Strings, bool>(), "characters"_a, "stop_words"_a, "stem"_a, nb::keep_alive<1, 2>());
    nb::class_<RunReader>(module, "RunReader")
        .def("__init__", [](RunReader* self, const Table& flags, const Analyzer* analyzer, size_t most) {
            if (most == 0 || (most & (most - 1)) != 0) throw nb::value_error("most is no power of two");
            new (self) RunReader(rows_of(flags), analyzer, most);
        }, "flags"_a, "analyzer"_a.none(), "most"_a, nb::keep_alive<1, 3>());
    nb::class_<TextReader>(module, "TextReader")
        .def("__init__", [](TextReader* self, const UnitReader& tokens, const RunReader& runs) { new (self) TextReader(&tokens, runs); },
             "tokens"_a, "runs"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def("__init__", [](TextReader* self, const WordReader& tokens, const RunReader& runs) { new (self) TextReader(&tokens, runs); },
             "tokens"_a, "runs"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def("read", &TextReader::read, "texts"_a, "odds"_a, "terms"_a)
        .def("cut", &TextReader::cut, "texts"_a, "segmenter"_a, "odds"_a, "terms"_a);
}

}  // namespace keyblock
