// The Python interface of the choice of blocks: see selection.hpp.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <limits>
#include <string_view>
#include <utility>

#include "bindings.hpp"
#include "selection.hpp"

namespace keyblock {
namespace {

template <class T>
Span<T> span(const Given<T>& array) {
    return {array.data(), array.size()};
}

// A Query and the arrays that it uses.
struct AskedQuery {
    Given<int64_t> terms;
    Given<double> idf, rare, vector;
    Query query;

    AskedQuery(Given<int64_t> terms_, Given<double> idf_, Given<double> rare_, double mass, Given<double> vector_, const Similar* similar,
               bool foreign, const std::vector<int32_t>& head, const std::vector<int32_t>& tail, size_t room, double unit)
        : terms(std::move(terms_)), idf(std::move(idf_)), rare(std::move(rare_)), vector(std::move(vector_)),
          query{span(terms), idf.data(), rare.data(), mass, span(vector), similar, foreign, head, tail, room, unit} {
        if (idf.size() != terms.size() || rare.size() != terms.size()) throw nb::value_error("there is not one weight for each term");
    }
};

// Keeps the arrays of Python objects while it lives; it is made and destroyed under the interpreter's lock.
class Arrays {
  public:
    Arrays() = default;
    Arrays(const Arrays&) = delete;
    Arrays& operator=(const Arrays&) = delete;
    ~Arrays() {
        for (Py_buffer& view : views_) PyBuffer_Release(&view);
    }
    template <class T>
    Span<T> of(nb::handle owner, const char* name, std::string_view formats) {
        nb::object array = owner.attr(name);
        if (array.is_none()) return {};
        if (!hold(array, sizeof(T), formats)) {
            array = nb::module_::import_("numpy").attr("require")(array, nb::str(formats.data(), 1), "CA");  // a copy, contiguous and aligned
            if (!hold(array, sizeof(T), formats)) throw nb::type_error("an array of numbers is due");
        }
        const Py_buffer& view = views_.back();
        return {static_cast<const T*>(view.buf), static_cast<size_t>(view.len) / sizeof(T)};
    }

  private:
    bool hold(nb::handle array, size_t width, std::string_view formats) {
        Py_buffer& view = views_.emplace_back();
        if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_FORMAT | PyBUF_ND) != 0) {
            PyErr_Clear();
        } else if (static_cast<size_t>(view.itemsize) == width && formats.find(view.format) != std::string_view::npos) {
            return true;
        } else {
            PyBuffer_Release(&view);
        }
        views_.pop_back();
        return false;
    }
    std::deque<Py_buffer> views_;  // a deque, so that they do not move
};

Document document_of(nb::handle prepared, Arrays& arrays) {
    const char *small = "b", *whole = "i", *key = "lq";
    return {arrays.of<int32_t>(prepared, "token_ids", whole), arrays.of<int32_t>(prepared, "bounds", whole),
            arrays.of<int64_t>(prepared, "terms", key),       arrays.of<int32_t>(prepared, "term_bounds", whole),
            arrays.of<int32_t>(prepared, "title_ids", whole), arrays.of<int8_t>(prepared, "vectors", small)};
}

nb::dict python(const Chosen& chosen) {
    nb::dict found;
    found["ids"] = Array(chosen.ids).numpy();
    found["sequence_ends"] = Array(chosen.sequence_ends).numpy();
    found["blocks"] = Array(chosen.blocks).numpy();
    found["block_ends"] = Array(chosen.block_ends).numpy();
    found["cut"] = Array(chosen.cut).numpy();
    found["sequences"] = Array(chosen.sequences).numpy();
    found["taken"] = Array(chosen.taken).numpy();
    found["n_taken"] = Array(chosen.n_taken).numpy();
    found["scores"] = Array(chosen.scores).numpy();
    found["evidence"] = Array(chosen.evidence).numpy(FEATURES);
    found["by"] = Array(chosen.by).numpy();
    found["counts"] = Array(chosen.counts).numpy();
    found["kept"] = Array(chosen.kept).numpy();
    found["having"] = Array(chosen.having).numpy();
    found["foreign"] = Array(chosen.foreign).numpy();
    found["unknown"] = Array(chosen.unknown).numpy();
    return found;
}

nb::dict select(const Rules& rules, const AskedQuery& asked, const nb::list& prepared) {
    Arrays arrays;
    std::vector<Document> documents;
    for (nb::handle one : prepared) documents.push_back(document_of(one, arrays));
    const size_t vocabulary = rules.shared ? rules.shared->kinds.size() : static_cast<size_t>(std::numeric_limits<int32_t>::max());
    Chosen chosen;
    bool whole = !rules.hybrid || rules.hybrid->soft == 0 || asked.query.similar != nullptr;
    {
        nb::gil_scoped_release unlocked;
        QueryDocument pair(rules, asked.query);
        for (const Document& document : documents) {
            whole = whole && document.whole(rules.hybrid ? asked.query.vector.size : 0, vocabulary);
            if (whole) pair.meet(document, chosen);
        }
    }
    if (!whole) throw nb::value_error("a prepared document's arrays do not belong together, or to this pipeline");
    return python(chosen);
}

}  // namespace

void bind_selection(nb::module_& module) {
    nb::class_<Bm25>(module, "Bm25").def(
        "__init__", [](Bm25* self, double k1, double b) { new (self) Bm25{k1, b}; }, "k1"_a, "b"_a);
    nb::class_<Hybrid>(module, "Hybrid")
        .def("__init__", [](Hybrid* self, double terms, double vectors, double low_confidence, double soft, double exact, double near, bool mass,
                            size_t exact_blocks) {
            new (self) Hybrid{terms, vectors, low_confidence, soft, exact, near, mass, exact_blocks};
        }, "terms"_a, "vectors"_a, "low_confidence"_a, "soft"_a, "exact"_a, "near"_a, "mass"_a, "exact_blocks"_a);
    nb::class_<SharedRules>(module, "SharedRules")
        .def("__init__", [](SharedRules* self, const Bm25& bm25, size_t kept, size_t looked_up, size_t fewest, double share, int32_t clearly,
                            Given<int8_t> kinds, Given<int64_t> known) {
            new (self) SharedRules{bm25, kept, looked_up, fewest, share, clearly, {kinds.data(), kinds.data() + kinds.size()}, keys_of(span(known))};
        }, "bm25"_a, "kept"_a, "looked_up"_a, "fewest"_a, "share"_a, "clearly"_a, "kinds"_a, "known"_a);
    nb::class_<AskedQuery>(module, "Query")
        .def(nb::init<Given<int64_t>, Given<double>, Given<double>, double, Given<double>, const Similar*, bool,
                      const std::vector<int32_t>&, const std::vector<int32_t>&, size_t, double>(),
             "terms"_a, "idf"_a, "rare"_a, "mass"_a, "vector"_a, "similar"_a.none(), "foreign"_a, "head"_a, "tail"_a, "room"_a, "unit"_a,
             nb::keep_alive<1, 7>());
    nb::class_<Rules>(module, "SelectionRules")
        .def("__init__", [](Rules* self, const Bm25& evidence, const Bm25& terms, std::optional<Hybrid> hybrid, bool joint, size_t passages,
                            std::optional<SharedRules> shared) {
            new (self) Rules{evidence, terms, std::move(hybrid), joint, passages, std::move(shared)};
        }, "evidence"_a, "terms"_a, "hybrid"_a.none(), "joint"_a, "passages"_a, "shared"_a.none())
        .def("select", &select, "query"_a, "documents"_a);
}

}  // namespace keyblock
