// The Python interface of readers: what they are told of a tokenizer, an analyzer and each character, and what they find.
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unordered_set.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <initializer_list>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "bindings.hpp"
#include "blocks.hpp"
#include "runs.hpp"
#include "units.hpp"

namespace keyblock {
namespace {

const uint32_t* rows_of(const Given<uint32_t>& table) {
    if (table.size() != CODES) throw nb::value_error("a table has not a row for each code point");
    return table.data();
}

Table table_of(const Given<uint32_t>& table) {
    return Table([rows = rows_of(table)](Code c) { return rows[c]; });
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

void make_word_reader(WordReader* self, const Characters& characters, const nb::dict& vocabulary, nb::str prefix, int32_t unknown,
                      size_t most, const Strings& stop_words, bool stem) {
    WordPiece::Vocabulary described{{}, codes_of(prefix), unknown, most};
    for (auto [token, id] : vocabulary) described.tokens.emplace_back(codes_of(token), nb::cast<int32_t>(id));
    auto model = std::make_unique<WordPiece>(characters, described);
    new (self) WordReader(characters, std::move(model), std::make_unique<English>(characters, stop_words, stem));
    nb::gil_scoped_release unlocked;
    self->meet(described.tokens);
}

// Places of characters that may end a sentence, which a reader finds beside tokens and terms.
Ints marks_of(const Characters& characters, const Text& text) {
    return text.visit([&](auto view) {
        Ints marks;
        for (size_t i = 0; i < view.size; ++i)
            if (characters.is(view.data[i], ENDS)) marks.push_back(static_cast<int32_t>(i));
        return marks;
    });
}

// What `work` finds in a text, without the interpreter's lock.
template <class Work>
auto found_in(nb::handle text, Work&& work) {
    const Text view = text_of(text);
    nb::gil_scoped_release unlocked;
    return work(view);
}

nb::object sentence_ends(const Sentences& sentences, nb::handle text) {
    return Array(found_in(text, [&](const Text& view) { return sentences.ends(view, marks_of(sentences.characters, view)); })).numpy();
}

nb::object structure_cuts(const Structure& structure, nb::handle text) {
    const auto found = found_in(text, [&](const Text& view) { return structure.cuts(view, marks_of(structure.sentences.characters, view)); });
    Array<int32_t> places(found, [](Cut cut) { return cut.place; });
    Array<int8_t> kinds(found, [](Cut cut) { return static_cast<int8_t>(cut.kind); });
    return nb::make_tuple(places.numpy(), kinds.numpy());
}

nb::object structure_clauses(const Structure& structure, nb::handle text) {
    return Array(found_in(text, [&](const Text& view) { return structure.clauses(view); })).numpy();
}

// The answers to questions: what was asked, the stretch, its tokens, and the keys of its terms.
Odds odds_of(const nb::list& answers) {
    using Answer = std::tuple<uint32_t, nb::str, std::vector<std::array<int32_t, 3>>, std::vector<int64_t>>;
    Odds found;
    for (nb::handle answer : answers) {
        const auto [asked, stretch, tokens, keys] = nb::cast<Answer>(answer);
        const std::vector<Code> codes = codes_of(stretch);
        Odd odd;
        for (auto [id, head, tail] : tokens) odd.pieces.push_back({id, head, tail});
        odd.keys = keys.empty() ? std::vector<int64_t>{0} : keys;
        found.emplace(name_of(static_cast<Asked>(asked), codes.data(), codes.data() + codes.size()), std::move(odd));
    }
    return found;
}

// What a reader finds in a text, made without the interpreter's lock: stretches that it asks about, or else the result.
struct Found {
    Array<int32_t> missing, ids;

    explicit Found(const Reading& found) : missing(found.missing), ids(found.tokens, [](const Piece& token) { return token.id; }) {}
};

struct ReadText : Found {
    Array<int32_t> heads, tails;

    explicit ReadText(const Reading& found)
        : Found(found), heads(found.tokens, [](const Piece& token) { return token.head; }),
          tails(found.tokens, [](const Piece& token) { return token.tail; }) {}
    nb::object python() { return nb::make_tuple(ids.numpy(), heads.numpy(), tails.numpy()); }
};

struct CutText : Found {
    Array<int32_t> bounds, starts, ends, key_bounds, asked;
    Array<int64_t> keys;

    CutText(const Reading& found, const Blocks& blocks)
        : Found(found), bounds(blocks.bounds), starts(blocks.starts), ends(blocks.ends), key_bounds(blocks.key_bounds),
          asked(blocks.asked), keys(blocks.keys) {}
    nb::object python() {
        return nb::make_tuple(
            ids.numpy(), bounds.numpy(2), starts.numpy(), ends.numpy(), keys.numpy(), key_bounds.numpy(), asked.numpy());
    }
};

// Reads texts: their tokens, and their runs.
class TextReader {
  public:
    using Tokens = std::variant<const UnitReader*, const WordReader*>;

    // runs: none: the reader of words finds them, too.
    TextReader(Tokens tokens, const RunReader* runs) : tokens_(tokens), runs_(runs) {}
    nb::list read(const nb::list& texts, const nb::list& answers) const {
        const Odds odds = odds_of(answers);
        return each<ReadText>(texts, [&](const Text& text, Reading& scratch) {
            read_one(text, odds, scratch);
            return ReadText(scratch);
        });
    }
    nb::list cut(const nb::list& texts, const Segmenter& segmenter, const nb::list& answers) const {
        const Odds odds = odds_of(answers);
        return each<CutText>(texts, [&](const Text& text, Reading& scratch) {
            read_one(text, odds, scratch);
            if (!scratch.missing.empty()) return CutText(scratch, {});
            return CutText(scratch, blocks_between(scratch, segmenter.bounds(text, scratch)));
        });
    }

  private:
    void read_one(const Text& text, const Odds& odds, Reading& scratch) const {
        std::visit([&](const auto* reader) { reader->read(text, odds, scratch); }, tokens_);
        if (runs_ == nullptr) return;
        scratch.runs.clear(), scratch.marks.clear();  // left by a reader of words
        runs_->read(text, odds, scratch);
    }

    // A list of the results of `work` for each text.
    template <class Result, class Work>
    static nb::list each(const nb::list& texts, Work&& work) {
        const nb::list kept(nb::steal<nb::list>(PyList_GetSlice(texts.ptr(), 0, PyList_GET_SIZE(texts.ptr()))));  // in case the list changes
        std::vector<Text> views;
        for (nb::handle text : kept) views.push_back(text_of(text));
        std::vector<Result> results;
        results.reserve(views.size());
        {
            nb::gil_scoped_release unlocked;
            static thread_local Reading scratch;
            for (const Text& view : views) {
                scratch.clear();
                results.push_back(work(view, scratch));
            }
            if (scratch.tokens.capacity() > KEPT) scratch = Reading();
        }
        nb::list found;
        for (Result& result : results) found.append(result.missing.size > 0 ? result.missing.numpy(3) : result.python());
        return found;
    }

    static constexpr size_t KEPT = 1 << 18;  // tokens for which a thread keeps its memory
    Tokens tokens_;
    const RunReader* runs_;
};

nb::dict named(std::initializer_list<std::pair<const char*, uint32_t>> numbers) {
    nb::dict found;
    for (auto [name, number] : numbers) found[name] = number;
    return found;
}

// The numbers by which Python describes characters, and by which readers ask.
void describe_numbers(nb::module_& module) {
    module.attr("FLAGS") = named({
        {"WORD", WORD}, {"WHITE", WHITE}, {"LOWER", LOWER}, {"CAPITAL", CAPITAL}, {"DIGIT", DIGIT}, {"DECIMAL", DECIMAL}, {"MARK", MARK},
        {"FULL_STOP", FULL_STOP}, {"CLOSING", CLOSING}, {"OPENING", OPENING}, {"LINE_BREAK", LINE_BREAK}, {"BULLET", BULLET}, {"NAME", NAME},
        {"ALPHABETIC", ALPHABETIC}, {"OTHER_STOP", OTHER_STOP}, {"COMMA", COMMA}, {"PAUSE", PAUSE}, {"PHRASED", PHRASED},
        {"ITEM_MARK", ITEM_MARK}, {"WIDE_COLON", WIDE_COLON},
    });
    module.attr("NONE") = NONE;
    module.attr("SORTS") = named({
        {"PLAIN", PLAIN}, {"LETTER_CLASS", LETTER_CLASS}, {"NUMBER_CLASS", NUMBER_CLASS}, {"MARK_CLASS", MARK_CLASS},
        {"PUNCTUATION", PUNCTUATION}, {"BEGINS_ADDED", BEGINS_ADDED},
    });
    module.attr("RUNS") = named({{"IN_RUN", IN_RUN}, {"PAIRED", PAIRED}, {"ENDS_SENTENCE", ENDS_SENTENCE}, {"VANISHES", VANISHES}});
    module.attr("ASKED") = named({{"FIRST_TOKENS", FIRST_TOKENS}, {"LAST_TOKENS", LAST_TOKENS}, {"TERMS", TERMS}});
    module.attr("CLASS_SHIFTS") = nb::make_tuple(FIRST_CLASS_SHIFT, LAST_CLASS_SHIFT);
    module.attr("SEVERAL") = Spellings::SEVERAL;
}

Segmenter::By by_of(const std::string& name) {
    if (name == "tokens") return Segmenter::TOKENS;
    if (name == "sentences") return Segmenter::SENTENCES;
    if (name == "structure") return Segmenter::STRUCTURE;
    throw nb::value_error("no text is cut by this");
}

}  // namespace

void bind_readers(nb::module_& module) {
    describe_numbers(module);
    nb::class_<Characters>(module, "Characters")
        .def("__init__", [](Characters* self, Given<Code> normal, Given<Code> folded, Given<Code> lower, Given<uint32_t> flags) {
            new (self) Characters(rows_of(normal), rows_of(folded), rows_of(lower), rows_of(flags));
        }, "normal"_a, "folded"_a, "lower"_a, "flags"_a);
    nb::class_<Sentences>(module, "Sentences")
        .def("__init__", [](Sentences* self, const Characters& characters, Strings titles, Strings names_go_on, Strings before_numbers,
                            Strings beginners) {
            new (self) Sentences(characters, {std::move(titles), std::move(names_go_on), std::move(before_numbers), std::move(beginners)});
        }, "characters"_a, "titles"_a, "names_go_on"_a, "before_numbers"_a, "beginners"_a, nb::keep_alive<1, 2>())
        .def("ends", &sentence_ends, "text"_a);
    nb::class_<Structure>(module, "Structure")
        .def(nb::init<const Sentences&>(), "sentences"_a, nb::keep_alive<1, 2>())
        .def("cuts", &structure_cuts, "text"_a)
        .def("clauses", &structure_clauses, "text"_a);
    nb::class_<Segmenter>(module, "Segmenter")
        .def("__init__", [](Segmenter* self, const Structure& structure, const std::string& by, size_t longest, Given<uint8_t> by_token) {
            new (self) Segmenter(structure, by_of(by), longest, {by_token.data(), by_token.data() + by_token.size()});
        }, "structure"_a, "by"_a, "longest"_a, "by_token"_a, nb::keep_alive<1, 2>());
    nb::class_<WordReader>(module, "WordReader")
        .def("__init__", &make_word_reader, "characters"_a, "vocabulary"_a, "prefix"_a, "unknown"_a, "most"_a, "stop_words"_a, "stem"_a,
             nb::keep_alive<1, 2>());
    nb::class_<Spellings>(module, "Spellings")
        .def("__init__", [](Spellings* self, Given<uint32_t> steps, const nb::list& several) {
            new (self) Spellings(table_of(steps), strings_of(several));
        }, "steps"_a, "several"_a);
    nb::class_<Model>(module, "Model");
    nb::class_<Merges, Model>(module, "Merges").def("__init__", &make_merges, "symbols"_a, "merges"_a, "whole"_a);
    nb::class_<Unigram, Model>(module, "Unigram").def("__init__", &make_unigram, "spellings"_a, "scores"_a, "unknown"_a);
    nb::class_<UnitRules>(module, "UnitRules")
        .def(nb::init<>())
        .def_rw("breaks_join", &UnitRules::breaks_join).def_rw("words_end", &UnitRules::words_end)
        .def_rw("newlines_join", &UnitRules::newlines_join).def_rw("marks_in_words", &UnitRules::marks_in_words)
        .def_rw("digits", &UnitRules::digits).def_rw("prefix", &UnitRules::prefix).def_rw("trim", &UnitRules::trim)
        .def_rw("mark_each", &UnitRules::mark_each).def_rw("mark_first", &UnitRules::mark_first)
        .def_rw("keeps_space", &UnitRules::keeps_space).def_rw("marks_alone", &UnitRules::marks_alone).def_rw("joins", &UnitRules::joins);
    nb::class_<UnitReader>(module, "UnitReader")
        .def("__init__", [](UnitReader* self, Given<uint32_t> sorts, const Spellings& normal, const UnitRules& rules, nb::str bytes,
                            const nb::list& added, const Model* model) {
            UnitRules all = rules;
            all.bytes = codes_of(bytes), all.added = strings_of(added);
            if (!all.bytes.empty() && all.bytes.size() != 256) throw nb::value_error("there is not a symbol for each byte");
            new (self) UnitReader(table_of(sorts), normal, std::move(all), model);
        }, "sorts"_a, "normal"_a, "rules"_a, "bytes"_a, "added"_a, "model"_a.none(), nb::keep_alive<1, 7>());
    nb::class_<Analyzer>(module, "Analyzer");
    nb::class_<Universal, Analyzer>(module, "Universal").def(nb::init<Spellings>(), "folded"_a);
    nb::class_<English, Analyzer>(module, "English")
        .def(nb::init<const Characters&, Strings, bool>(), "characters"_a, "stop_words"_a, "stem"_a, nb::keep_alive<1, 2>());
    nb::class_<RunReader>(module, "RunReader")
        .def("__init__", [](RunReader* self, Given<uint32_t> flags, const Analyzer* analyzer, size_t most) {
            if (most == 0 || (most & (most - 1)) != 0) throw nb::value_error("most is no power of two");
            new (self) RunReader(table_of(flags), analyzer, most);
        }, "flags"_a, "analyzer"_a.none(), "most"_a, nb::keep_alive<1, 3>());
    nb::class_<TextReader>(module, "TextReader")
        .def("__init__", [](TextReader* self, const UnitReader& tokens, const RunReader& runs) { new (self) TextReader(&tokens, &runs); },
             "tokens"_a, "runs"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def("__init__", [](TextReader* self, const WordReader& tokens, const RunReader* runs) { new (self) TextReader(&tokens, runs); },
             "tokens"_a, "runs"_a.none(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def("read", &TextReader::read, "texts"_a, "answers"_a)
        .def("cut", &TextReader::cut, "texts"_a, "segmenter"_a, "answers"_a);
}

}  // namespace keyblock
