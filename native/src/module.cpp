// The Python interface. All work is done without the interpreter's lock; objects do not change once they are made.
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_set.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "near_tokens.hpp"
#include "oddities.hpp"
#include "porter.hpp"
#include "processors.hpp"
#include "selection_module.hpp"
#include "sentences.hpp"
#include "vectors.hpp"

namespace keyblock {
namespace {

nb::list read_texts(const WordReader& reader, const nb::list& texts, const Odds& odds) {
    return each<ReadText>(texts, [&](auto text, Reading& scratch) {
        reader.read(text, odds, scratch);
        return ReadText(scratch);
    });
}

nb::list cut_texts(const WordReader& reader, const nb::list& texts, const Segmenter& segmenter, const Odds& odds) {
    return each<CutText>(texts, [&](auto text, Reading& scratch) {
        reader.read(text, odds, scratch);
        if (!scratch.missing.empty()) return CutText(scratch, {});
        const auto apart = [&](size_t start, size_t end, std::vector<int64_t>& found) { return reader.keys_between(text, start, end, found); };
        return CutText(scratch, blocks_between(scratch, apart, bounds_by(segmenter, text, scratch)));
    });
}

// Places of characters that may end a sentence, which a reader finds beside tokens and terms.
template <class Unit>
Ints marks_of(const Characters& characters, View<Unit> text) {
    Ints marks;
    for (size_t i = 0; i < text.size; ++i)
        if (characters.is(text.data[i], ENDS)) marks.push_back(static_cast<int32_t>(i));
    return marks;
}

// The places that `work` finds in a text.
template <class Result, class Work>
Result found_in(nb::handle text, Work&& work) {
    const Text view = text_of(text);
    Result found;
    nb::gil_scoped_release unlocked;
    view.visit([&](auto some) { found = work(some); });
    return found;
}

nb::object sentence_ends(const Sentences& sentences, nb::handle text) {
    return Array(found_in<Ints>(text, [&](auto some) {
        Ints found;
        sentences.ends(some, marks_of(sentences.characters, some), found);
        return found;
    })).numpy();
}

nb::object structure_cuts(const Structure& structure, nb::handle text) {
    const auto found = found_in<std::vector<Cut>>(text, [&](auto some) {
        return structure.cuts(some, marks_of(structure.sentences.characters, some));
    });
    Array<int32_t> places(found, [](Cut cut) { return cut.place; });
    Array<int8_t> kinds(found, [](Cut cut) { return static_cast<int8_t>(cut.kind); });
    return nb::make_tuple(places.numpy(), kinds.numpy());
}

nb::object structure_clauses(const Structure& structure, nb::handle text) {
    return Array(found_in<Ints>(text, [&](auto some) { return structure.clauses(some); })).numpy();
}

// Of each odd text its number, its odd rows, and whether it is spelled oddly; texts of prose are left out.
nb::list oddities(const nb::list& texts) {
    nb::list found;
    for (size_t i = 0; i < texts.size(); ++i) {
        const nb::object text = nb::borrow(texts[i]);  // in case the list changes
        const Text view = text_of(text);
        Oddities odd;
        {
            nb::gil_scoped_release unlocked;
            odd = view.visit([](auto some) { return oddities_of(some); });
        }
        if (odd.spelled || !odd.rows.empty()) found.append(nb::make_tuple(i, Array(odd.rows).numpy(), odd.spelled));
    }
    return found;
}

Odds odds_of(const nb::list& words, Given<int32_t> counts, Given<int32_t> ids, Given<int32_t> heads, Given<int32_t> tails,
             Given<int32_t> key_counts, Given<int64_t> keys) {
    Odds found;
    size_t piece = 0, key = 0, i = 0;
    if (counts.size() != words.size() || key_counts.size() != words.size()) throw nb::value_error("counts are not one a word");
    for (nb::handle word : words) {
        const std::vector<Code> codes = codes_of(word);
        Odd odd;
        for (int32_t n = counts(i); n > 0; --n, ++piece) {
            if (piece >= ids.size() || ids.size() != heads.size() || ids.size() != tails.size()) throw nb::value_error("too few tokens");
            odd.pieces.push_back({ids(piece), heads(piece), tails(piece)});
        }
        for (int32_t n = key_counts(i); n > 0; --n, ++key) {
            if (key >= keys.size()) throw nb::value_error("too few keys");
            odd.keys.push_back(keys(key));
        }
        found.emplace(std::u32string(codes.begin(), codes.end()), std::move(odd));
        ++i;
    }
    return found;
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

// A TokenTable and the arrays that it uses.
class Encoder {
  public:
    using Table = nb::ndarray<const int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

    Encoder(Table table, Given<float> scales, Given<float> to_length_1)
        : kept_(std::move(table)), scales_(std::move(scales)), to_length_1_(std::move(to_length_1)),
          table_{kept_.data(), scales_.data(), to_length_1_.data(), kept_.shape(0), kept_.shape(1)} {
        if (scales_.size() != table_.vocabulary || to_length_1_.size() != table_.vocabulary)
            throw nb::value_error("there is not one scale for each row");
    }
    const TokenTable& table() const { return table_; }
    nb::object encode(Given<int32_t> ids, nb::ndarray<const int32_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu> bounds) const {
        const auto n_ids = static_cast<int32_t>(ids.size());
        const size_t n = bounds.shape(0), size = table_.dimensions;
        const int32_t *token = ids.data(), *bound = bounds.data();
        std::vector<int8_t> found(n * size);
        bool known = true;
        {
            nb::gil_scoped_release unlocked;
            for (int32_t i = 0; i < n_ids; ++i) known &= token[i] >= 0 && static_cast<size_t>(token[i]) < table_.vocabulary;
            for (size_t i = 0; i < 2 * n; i += 2) known &= 0 <= bound[i] && bound[i] <= bound[i + 1] && bound[i + 1] <= n_ids;
            std::vector<float> sum(size);
            for (size_t i = 0; known && i < n; ++i)
                table_.encode(token + bound[2 * i], static_cast<size_t>(bound[2 * i + 1] - bound[2 * i]), sum.data(), found.data() + i * size);
        }
        if (!known) throw nb::value_error("a token or a bound is out of range");
        return Array(found).numpy(size);
    }

  private:
    Table kept_;
    Given<float> scales_, to_length_1_;
    TokenTable table_;
};

void make_similar(Similar* self, const Encoder& encoder, Given<int32_t> ids, Given<float> weights) {
    bool known = ids.size() == weights.size();
    for (size_t i = 0; i < ids.size(); ++i) known &= ids(i) >= 0 && static_cast<size_t>(ids(i)) < encoder.table().vocabulary;
    if (!known) throw nb::value_error("a token is out of range, or has no weight");
    new (self) Similar(encoder.table(), ids.data(), weights.data(), ids.size());
}

// The outline of a text, for tests: for each character the sets that it is in, and its folded form.
nb::object outlined(const Characters& characters, nb::handle text, bool plainly) {
    const Text view = text_of(text);
    Outline outline;
    const Ascii ascii(characters);
    view.visit([&](auto some) { outline.draw(ascii, some, plainly); });
    Ints found;
    for (size_t at = 0; at < view.size; ++at) {
        const Bits bits = outline.bits(at);
        for (uint64_t some : {bits.space, bits.letter, bits.word, bits.ends, bits.other}) found.push_back(some & 1);
        found.push_back(*outline.folded(at));
    }
    return Array(found).numpy(6);
}

std::string stemmed(const std::string& word) {
    std::vector<Code> codes(word.begin(), word.end());
    codes.push_back(0);
    const size_t size = porter(codes.data(), word.size());
    return {codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(size)};
}

void describe_flags(nb::module_& module) {
    const std::pair<const char*, uint32_t> flags[] = {
        {"WORD", WORD}, {"WHITE", WHITE}, {"LOWER", LOWER}, {"CAPITAL", CAPITAL}, {"DIGIT", DIGIT}, {"DECIMAL", DECIMAL}, {"MARK", MARK},
        {"FULL_STOP", FULL_STOP}, {"CLOSING", CLOSING}, {"OPENING", OPENING}, {"LINE_BREAK", LINE_BREAK}, {"BULLET", BULLET}, {"NAME", NAME},
        {"ALPHABETIC", ALPHABETIC}, {"OTHER_STOP", OTHER_STOP}, {"COMMA", COMMA}, {"PAUSE", PAUSE}, {"PHRASED", PHRASED},
        {"ITEM_MARK", ITEM_MARK}, {"WIDE_COLON", WIDE_COLON},
    };
    nb::dict found;
    for (auto [name, flag] : flags) found[name] = flag;
    module.attr("FLAGS") = found;
    module.attr("SIGN_SHIFT") = SIGN_SHIFT;
    module.attr("NONE") = NONE;
}

}  // namespace
}  // namespace keyblock

NB_MODULE(_core, module) {
    using namespace keyblock;
    nb::set_leak_warnings(false);  // readers live as long as the process, and are no leaks
    constexpr const char* PROCESSORS[] = {"plain", "avx2", "avx512"};
    module.attr("PROCESSOR") = PROCESSORS[static_cast<int>(processor())];  // the kind of processor whose code runs here
    module.attr("INTERFACE") = 7;  // changes whenever older versions of keyblock cannot use the module
    describe_flags(module);
    describe_selection(module);

    nb::class_<Characters>(module, "Characters")
        .def("__init__", [](Characters* self, Given<Code> normal, Given<Code> folded, Given<Code> lower, Given<uint32_t> flags) {
            for (size_t size : {normal.size(), folded.size(), lower.size(), flags.size()})
                if (size != CODES) throw nb::value_error("a table has not a row for each code point");
            new (self) Characters(normal.data(), folded.data(), lower.data(), flags.data());
        }, "normal"_a, "folded"_a, "lower"_a, "flags"_a);
    nb::class_<Unfinished>(module, "Unfinished")
        .def_prop_ro("missing", [](const Unfinished& self) { return Array(self.begun.missing).numpy(3); },
                     "Of each stretch that is to be answered, where it starts and ends, and what is asked of it.");
    nb::class_<Odds>(module, "Odds")
        .def("__init__", [](Odds* self) { new (self) Odds(); })
        .def("__init__", [](Odds* self, const nb::list& words, Given<int32_t> counts, Given<int32_t> ids, Given<int32_t> heads,
                            Given<int32_t> tails, Given<int32_t> key_counts, Given<int64_t> keys) {
            new (self) Odds(odds_of(words, counts, ids, heads, tails, key_counts, keys));
        }, "words"_a, "counts"_a, "ids"_a, "heads"_a, "tails"_a, "key_counts"_a, "keys"_a);
    nb::class_<Sentences>(module, "Sentences")
        .def("__init__", [](Sentences* self, const Characters& characters, Strings titles, Strings names_go_on, Strings before_numbers,
                            Strings beginners) {
            new (self) Sentences(characters, {std::move(titles), std::move(names_go_on), std::move(before_numbers), std::move(beginners)});
        }, "characters"_a, "titles"_a, "names_go_on"_a, "before_numbers"_a, "beginners"_a, nb::keep_alive<1, 2>())
        .def("ends", &sentence_ends, "text"_a);
    nb::class_<WholeSentences>(module, "WholeSentences")
        .def("__init__", [](WholeSentences* self, const Sentences& sentences, Given<uint8_t> roles, size_t longest) {
            new (self) WholeSentences(sentences, {roles.data(), roles.data() + roles.size()}, longest);
        }, "sentences"_a, "roles"_a, "longest"_a, nb::keep_alive<1, 2>());
    nb::class_<Structure>(module, "Structure")
        .def(nb::init<const Sentences&>(), "sentences"_a, nb::keep_alive<1, 2>())
        .def("cuts", &structure_cuts, "text"_a)
        .def("clauses", &structure_clauses, "text"_a);
    nb::class_<ByStructure>(module, "ByStructure")
        .def(nb::init<const Structure&, size_t>(), "structure"_a, "longest"_a, nb::keep_alive<1, 2>());
    nb::class_<WordReader>(module, "WordReader")
        .def("__init__", &make_word_reader, "characters"_a, "vocabulary"_a, "prefix"_a, "unknown"_a, "most"_a, "stop_words"_a, "stem"_a,
             nb::keep_alive<1, 2>())
        .def("read", &read_texts, "texts"_a, "odds"_a)
        .def("cut", &cut_texts, "texts"_a, "segmenter"_a, "odds"_a);
    nb::class_<Encoder>(module, "Encoder")
        .def(nb::init<Encoder::Table, Given<float>, Given<float>>(), "table"_a, "scales"_a, "to_length_1"_a)
        .def("encode", &Encoder::encode, "ids"_a, "bounds"_a);
    nb::class_<Similar>(module, "Similar").def("__init__", &make_similar, "encoder"_a, "ids"_a, "weights"_a, nb::keep_alive<1, 2>());
    bind_units(module);
    module.def("porter", &stemmed, "word"_a, "The stem of a lower-case ASCII word, as Snowball's porter has it.");
    module.def("oddities", &oddities, "texts"_a);
    module.def("outline", &outlined, "characters"_a, "text"_a, "plainly"_a,
               "Whether each character is a space, a letter, part of a word, may end a sentence, or is read by itself; and what it folds to.");
    module.def("term_key", [](nb::str term) {
        const std::vector<Code> codes = codes_of(term);
        return term_key(codes.data(), codes.size());
    }, "term"_a);
    module.def("term_keys", [](const nb::list& terms) {
        std::vector<int64_t> keys;
        for (nb::handle term : terms) {
            const std::vector<Code> codes = codes_of(term);
            keys.push_back(term_key(codes.data(), codes.size()));
        }
        return Array(keys).numpy();
    }, "terms"_a);
}
