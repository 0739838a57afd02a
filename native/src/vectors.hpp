// Vectors of blocks from a table of token vectors: keyblock.encoders.TokenTable.
#pragma once
#include <cstddef>
#include <cstdint>

namespace keyblock {

struct TokenTable {
    const int8_t* rows;  // of `dimensions` numbers
    const float *scales, *to_length_1;
    size_t vocabulary, dimensions;

    // The scaled sum of the rows of `ids`, at length 1 times 127, in integers; 0 if the sum is 0. `sum` has room for `dimensions` numbers.
    void encode(const int32_t* ids, size_t n, float* sum, int8_t* found) const;
    // Prefetches a row.
    void expect(size_t id) const;
};

}  // namespace keyblock
