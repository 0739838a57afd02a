#include "vectors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "processors.hpp"

namespace keyblock {
namespace {

constexpr float QUANTUM = 127;  // keyblock.prepared.QUANTUM
constexpr size_t AHEAD = 8;     // rows that are prefetched
constexpr size_t LINE = 64;     // bytes of a cache line

INLINED void add_up(const TokenTable& table, const int32_t* ids, size_t n, float* sum) {
    const size_t dimensions = table.dimensions;
    for (size_t i = 0; i < n; ++i) {
        if (i + AHEAD < n) table.expect(static_cast<size_t>(ids[i + AHEAD]));
        const auto id = static_cast<size_t>(ids[i]);
        const int8_t* row = table.rows + id * dimensions;
        const float scale = table.scales[id];
        for (size_t at = 0; at < dimensions; ++at) sum[at] += scale * static_cast<float>(row[at]);
    }
}

// A vector at length 1, times QUANTUM, in integers.
INLINED void quantize(const float* vector, size_t n, int8_t* found) {
    constexpr size_t COLUMNS = 16;
    float column[COLUMNS] = {}, squares = 0;
    size_t at = 0;
    for (; at + COLUMNS <= n; at += COLUMNS)
        for (size_t i = 0; i < COLUMNS; ++i) column[i] += vector[at + i] * vector[at + i];
    for (float some : column) squares += some;
    for (; at < n; ++at) squares += vector[at] * vector[at];
    const float length = std::sqrt(squares);
    const bool some = length > std::numeric_limits<float>::min();
    for (at = 0; at < n; ++at) found[at] = some ? static_cast<int8_t>(std::nearbyint(vector[at] / length * QUANTUM)) : int8_t{0};
}

}  // namespace

void TokenTable::encode(const int32_t* ids, size_t n, float* sum, int8_t* found) const {
    for_this_processor([=]() INLINED_BODY {
        std::fill(sum, sum + dimensions, 0.0f);
        add_up(*this, ids, n, sum);
        quantize(sum, dimensions, found);
    });
}

void TokenTable::expect(size_t id) const {
    for (size_t at = 0; at < dimensions; at += LINE) __builtin_prefetch(rows + id * dimensions + at);
}

}  // namespace keyblock
