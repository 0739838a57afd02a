#include "vectors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "processors.hpp"

namespace keyblock {
namespace {

constexpr float QUANTUM = 127;  // keyblock.prepared.QUANTUM
constexpr size_t AHEAD = 8;     // rows that are asked of memory before they are needed

FOR_EACH_PROCESSOR void add_up(const TokenTable& table, const int32_t* ids, size_t n, float* sum) {
    const size_t dimensions = table.dimensions;
    for (size_t i = 0; i < n; ++i) {
#if defined(__GNUC__)
        if (i + AHEAD < n) {
            const int8_t* next = table.rows + static_cast<size_t>(ids[i + AHEAD]) * dimensions;
            for (size_t at = 0; at < dimensions; at += 64) __builtin_prefetch(next + at);
        }
#endif
        const auto id = static_cast<size_t>(ids[i]);
        const int8_t* row = table.rows + id * dimensions;
        const float scale = table.scales[id];
        for (size_t at = 0; at < dimensions; ++at) sum[at] += scale * static_cast<float>(row[at]);
    }
}

}  // namespace

void TokenTable::encode(const int32_t* ids, size_t n, float* sum, int8_t* found) const {
    std::fill(sum, sum + dimensions, 0.0f);
    add_up(*this, ids, n, sum);
    float squares = 0;
    for (size_t i = 0; i < dimensions; ++i) squares += sum[i] * sum[i];
    const float length = std::sqrt(squares);
    const bool some = length > std::numeric_limits<float>::min();
    for (size_t i = 0; i < dimensions; ++i) found[i] = some ? static_cast<int8_t>(std::nearbyint(sum[i] / length * QUANTUM)) : int8_t{0};
}

}  // namespace keyblock
