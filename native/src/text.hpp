// The characters of a Python string in its own memory, one, two or four bytes each: nothing is decoded or copied.
#pragma once
#include <cstddef>
#include <cstdint>

namespace keyblock {

using Code = uint32_t;

template <class Unit>
struct View {
    const Unit* data;
    size_t size;
};

struct Text {
    const void* data;
    size_t size;
    int width;  // bytes of a character: 1, 2 or 4

    // Calls `work` with a View of the right width.
    template <class Work>
    decltype(auto) visit(Work&& work) const {
        switch (width) {
            case 1: return work(View<uint8_t>{static_cast<const uint8_t*>(data), size});
            case 2: return work(View<uint16_t>{static_cast<const uint16_t*>(data), size});
            default: return work(View<uint32_t>{static_cast<const uint32_t*>(data), size});
        }
    }
};

}  // namespace keyblock
