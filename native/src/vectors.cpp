#include "vectors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "processors.hpp"

namespace keyblock {
namespace {

constexpr float QUANTUM = 127;  // keyblock.prepared.QUANTUM
constexpr size_t AHEAD = 8;     // rows that are asked of memory before they are needed
constexpr size_t TOGETHER = 4;  // rows of the query that a row is multiplied with at once
constexpr size_t LINE = 64;     // bytes of memory that come together

FOR_EACH_PROCESSOR void add_up(const TokenTable& table, const int32_t* ids, size_t n, float* sum) {
    const size_t dimensions = table.dimensions;
    for (size_t i = 0; i < n; ++i) {
        if (i + AHEAD < n) table.expect(static_cast<size_t>(ids[i + AHEAD]));
        const auto id = static_cast<size_t>(ids[i]);
        const int8_t* row = table.rows + id * dimensions;
        const float scale = table.scales[id];
        for (size_t at = 0; at < dimensions; ++at) sum[at] += scale * static_cast<float>(row[at]);
    }
}

// A vector at length 1, times QUANTUM, in whole numbers.
FOR_EACH_PROCESSOR void quantize(const float* vector, size_t n, int8_t* found) {
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

// Products of a row and each of the query's, in whole numbers, as they count.
FOR_EACH_PROCESSOR void nearness(const int8_t* row, float to_length_1, const int16_t* query, const float* weights, size_t n, size_t dimensions,
                                 int16_t* wide, float* found) {
    for (size_t at = 0; at < dimensions; ++at) wide[at] = row[at];
    for (size_t first = 0; first < n; first += TOGETHER, query += TOGETHER * dimensions) {
        int32_t product[TOGETHER] = {};
        for (size_t at = 0; at < dimensions; ++at)
            for (size_t i = 0; i < TOGETHER; ++i) product[i] += wide[at] * query[i * dimensions + at];
        for (size_t i = 0; i < TOGETHER && first + i < n; ++i) found[first + i] = static_cast<float>(product[i]);
    }
    for (size_t i = 0; i < n; ++i) {
        const float near = found[i] * to_length_1 * weights[i];
        found[i] = near > 0 ? near : 0;
    }
}

}  // namespace

void TokenTable::encode(const int32_t* ids, size_t n, float* sum, int8_t* found) const {
    std::fill(sum, sum + dimensions, 0.0f);
    add_up(*this, ids, n, sum);
    quantize(sum, dimensions, found);
}

void TokenTable::expect([[maybe_unused]] size_t id) const {
#if defined(__GNUC__)
    for (size_t at = 0; at < dimensions; at += LINE) __builtin_prefetch(rows + id * dimensions + at);
#endif
}

Similar::Similar(const TokenTable& table, const int32_t* ids, const float* weights, size_t n) : table_(table), weights_(weights, weights + n) {
    for (size_t i = 0; i < n; ++i) {
        const int8_t* row = table.rows + static_cast<size_t>(ids[i]) * table.dimensions;
        rows_.insert(rows_.end(), row, row + table.dimensions);
    }
    rows_.resize((n + TOGETHER - 1) / TOGETHER * TOGETHER * table.dimensions);
}

void Similar::of(size_t token, std::vector<int16_t>& room, float* found) const {
    room.resize(table_.dimensions);
    const int8_t* row = table_.rows + token * table_.dimensions;
    nearness(row, table_.to_length_1[token], rows_.data(), weights_.data(), size(), table_.dimensions, room.data(), found);
}

}  // namespace keyblock
