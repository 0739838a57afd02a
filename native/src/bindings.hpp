// Shared by the parts of the module: strings, arrays, and the results of a reader.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "blocks.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace keyblock {

template <class T>
using Given = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline Text text_of(nb::handle text) {
    if (!PyUnicode_Check(text.ptr())) throw nb::type_error("a text is no str");
    return {PyUnicode_DATA(text.ptr()), static_cast<size_t>(PyUnicode_GET_LENGTH(text.ptr())), static_cast<int>(PyUnicode_KIND(text.ptr()))};
}

inline std::vector<Code> codes_of(nb::handle text) {
    return text_of(text).visit([](auto view) { return std::vector<Code>(view.data, view.data + view.size); });
}

// An array of the right size, made without the interpreter's lock, that becomes a NumPy array under the lock.
template <class T>
struct Array {
    std::unique_ptr<T[]> data;
    size_t size;

    explicit Array(const std::vector<T>& values) : Array(values, [](T value) { return value; }) {}
    // The results of `column` for all rows.
    template <class Row, class Column>
    Array(const std::vector<Row>& rows, Column&& column) : data(new T[rows.size()]), size(rows.size()) {
        std::transform(rows.begin(), rows.end(), data.get(), column);
    }
    nb::object numpy(size_t columns = 0) {
        T* values = data.release();
        nb::capsule owner(values, [](void* some) noexcept { delete[] static_cast<T*>(some); });
        const size_t shape[2] = {columns == 0 ? size : size / columns, columns};
        return nb::cast(nb::ndarray<nb::numpy, T>(values, columns == 0 ? 1 : 2, shape, owner));
    }
};

constexpr auto ID = [](const Piece& token) { return token.id; };

// A text with stretches that are not answered yet: the reader continues when it gets this in place of the text.
struct Unfinished {
    nb::object text;
    Reading begun;
};

inline nb::handle text_or_its(nb::handle text) {
    return nb::isinstance<Unfinished>(text) ? nb::handle(nb::cast<const Unfinished&>(text).text) : text;
}

// The result of reading a text, made without the interpreter's lock.
struct Found {
    std::unique_ptr<Reading> begun;  // if the text is unfinished

    explicit Found(const Reading& found) : begun(found.missing.empty() ? nullptr : std::make_unique<Reading>(found)) {}
    nb::object unfinished(nb::handle text) { return nb::cast(Unfinished{nb::borrow(text), std::move(*begun)}); }
};

struct ReadText : Found {
    Array<int32_t> ids, heads, tails, run_heads, run_tails;
    Array<int64_t> keys;

    explicit ReadText(const Reading& found)
        : Found(found), ids(found.tokens, ID), heads(found.tokens, [](const Piece& token) { return token.head; }),
          tails(found.tokens, [](const Piece& token) { return token.tail; }), run_heads(found.runs, [](const Run& run) { return run.head; }),
          run_tails(found.runs, [](const Run& run) { return run.tail; }), keys(found.runs, [](const Run& run) { return run.key; }) {}
    nb::object python(nb::handle text) {
        if (begun != nullptr) return unfinished(text);
        return nb::make_tuple(ids.numpy(), heads.numpy(), tails.numpy(), run_heads.numpy(), run_tails.numpy(), keys.numpy());
    }
};

struct CutText : Found {
    Array<int32_t> ids, bounds, starts, ends, key_bounds, asked;
    Array<int64_t> keys;

    CutText(const Reading& found, const Blocks& blocks)
        : Found(found), ids(found.tokens, ID), bounds(blocks.bounds), starts(blocks.starts), ends(blocks.ends),
          key_bounds(blocks.key_bounds), asked(blocks.asked), keys(blocks.keys) {}
    nb::object python(nb::handle text) {
        if (begun != nullptr) return unfinished(text);
        return nb::make_tuple(
            ids.numpy(), bounds.numpy(2), starts.numpy(), ends.numpy(), keys.numpy(), key_bounds.numpy(), asked.numpy());
    }
};

// A list of the results of `work` for each text or Unfinished, which `work` gets with the part read so far.
template <class Result, class Work>
nb::list each(const nb::list& texts, Work&& work) {
    const nb::list kept(nb::steal<nb::list>(PyList_GetSlice(texts.ptr(), 0, PyList_GET_SIZE(texts.ptr()))));  // in case the list changes
    std::vector<Text> views;
    std::vector<const Reading*> begun;
    for (nb::handle text : kept) {
        views.push_back(text_of(text_or_its(text)));
        begun.push_back(nb::isinstance<Unfinished>(text) ? &nb::cast<const Unfinished&>(text).begun : nullptr);
    }
    std::vector<Result> results;
    results.reserve(views.size());
    {
        nb::gil_scoped_release unlocked;
        static thread_local Reading scratch;
        for (size_t i = 0; i < views.size(); ++i) {
            if (begun[i] != nullptr) scratch = *begun[i];
            else scratch.clear();
            results.push_back(views[i].visit([&](auto text) { return work(text, scratch); }));
        }
    }
    nb::list found;
    for (size_t i = 0; i < results.size(); ++i) found.append(results[i].python(text_or_its(kept[i])));
    return found;
}

// Adds readers of other tokenizers and analyzers to the module.
void bind_units(nb::module_& module);

}  // namespace keyblock
