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
constexpr size_t TOGETHER = 4;  // rows of the query that are multiplied with a row at once

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

// How near a row is to each of the query's rows: products summed in integers, then scaled and weighted, at least 0.
INLINED void nearness(const int8_t* row, float to_length_1, const int16_t* query, const float* weights, size_t n, size_t dimensions,
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
    for_this_processor([=]() INLINED_BODY {
        std::fill(sum, sum + dimensions, 0.0f);
        add_up(*this, ids, n, sum);
        quantize(sum, dimensions, found);
    });
}

void TokenTable::expect(size_t id) const {
    for (size_t at = 0; at < dimensions; at += LINE) __builtin_prefetch(rows + id * dimensions + at);
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
    const size_t dimensions = table_.dimensions, n = size();
    const int8_t* row = table_.rows + token * dimensions;
    const float to_length_1 = table_.to_length_1[token], *weights = weights_.data();
    const int16_t* query = rows_.data();
    int16_t* wide = room.data();
    for_this_processor([=]() INLINED_BODY { nearness(row, to_length_1, query, weights, n, dimensions, wide, found); });
}

Similar::~Similar() = default;

std::unique_ptr<NearTokens> Similar::take() const {
    std::lock_guard lock(lending_);
    if (known_.empty()) return std::make_unique<NearTokens>(*this);
    std::unique_ptr<NearTokens> known = std::move(known_.back());
    known_.pop_back();
    return known;
}

void Similar::give(std::unique_ptr<NearTokens> known) const {
    std::lock_guard lock(lending_);
    known_.push_back(std::move(known));
}

void NearTokens::look_up(const int32_t* tokens, size_t n) {
    const size_t columns = similar_.size(), last = similar_.vocabulary() - 1;
    if (table_.empty()) table_.resize(columns);  // row 0 belongs to no token
    size_t rows = table_.size() / columns;
    new_.clear();
    numbers_.resize(n);
    for (size_t i = 0; i < n; ++i) {
        const size_t token = std::min(static_cast<size_t>(tokens[i]), last);
        if (known_[token] == 0) {
            known_[token] = static_cast<int32_t>(rows++);
            new_.push_back(static_cast<int32_t>(token));
        }
        numbers_[i] = known_[token];
    }
    table_.resize(rows * columns);
    float* row = table_.data() + (rows - new_.size()) * columns;
    for (size_t i = 0; i < new_.size(); ++i, row += columns) {
        if (i + AHEAD < new_.size()) similar_.expect(static_cast<size_t>(new_[i + AHEAD]));
        similar_.of(static_cast<size_t>(new_[i]), room_, row);
    }
}

}  // namespace keyblock
