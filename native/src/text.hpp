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

    template <class Unit>
    Text(View<Unit> view) : data(view.data), size(view.size), width(sizeof(Unit)) {}
    Text(const void* data, size_t size, int width) : data(data), size(size), width(width) {}

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

// Writes a character in UTF-8, at most four bytes; returns how many.
inline size_t utf8(Code c, uint8_t* into) {
    const auto tail = [c](int shift) { return static_cast<uint8_t>(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x80) {
        into[0] = static_cast<uint8_t>(c);
        return 1;
    }
    if (c < 0x800) {
        into[0] = static_cast<uint8_t>(0xC0 | c >> 6), into[1] = tail(0);
        return 2;
    }
    if (c < 0x10000) {
        into[0] = static_cast<uint8_t>(0xE0 | c >> 12), into[1] = tail(6), into[2] = tail(0);
        return 3;
    }
    into[0] = static_cast<uint8_t>(0xF0 | c >> 18), into[1] = tail(12), into[2] = tail(6), into[3] = tail(0);
    return 4;
}

}  // namespace keyblock
