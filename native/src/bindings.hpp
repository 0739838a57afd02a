// Shared by the parts of the module: strings and arrays.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "text.hpp"

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

// Adds the readers of texts to the module.
void bind_readers(nb::module_& module);

// Adds the choice of blocks.
void bind_selection(nb::module_& module);

}  // namespace keyblock
