// Vectors of blocks from a table of token vectors, and how near tokens are: keyblock.encoders.TokenTable.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace keyblock {

struct TokenTable {
    const int8_t* rows;  // of `dimensions` numbers
    const float *scales, *to_length_1;
    size_t vocabulary, dimensions;

    // The scaled sum of the rows of `ids`, at length 1 times 127, in whole numbers; 0 where it is 0. `sum` has room for `dimensions` numbers.
    void encode(const int32_t* ids, size_t n, float* sum, int8_t* found) const;
    // Asks memory for a row.
    void expect(size_t id) const;
};

// keyblock.encoders.SimilarTokens.
class Similar {
  public:
    Similar(const TokenTable& table, const int32_t* ids, const float* weights, size_t n);
    size_t size() const { return weights_.size(); }  // tokens of the query
    size_t vocabulary() const { return table_.vocabulary; }
    // How near a token is to each of the query's, in `found`. `room` is any.
    void of(size_t token, std::vector<int16_t>& room, float* found) const;
    void expect(size_t token) const { table_.expect(token); }

  private:
    const TokenTable table_;
    std::vector<float> weights_;
    std::vector<int16_t> rows_;  // of the query's tokens
};

}  // namespace keyblock
