// Vectors of blocks from a table of token vectors, and how near tokens are to the tokens of a query: keyblock.encoders.TokenTable and
// SimilarTokens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

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

class NearTokens;

// A query's tokens. Any number of threads may compare other tokens with them.
class Similar {
  public:
    Similar(const TokenTable& table, const int32_t* ids, const float* weights, size_t n);
    ~Similar();
    size_t size() const { return weights_.size(); }  // tokens of the query
    size_t vocabulary() const { return table_.vocabulary; }
    // Writes to `found` how near a token is to each of the query's. `room` is working memory.
    void of(size_t token, std::vector<int16_t>& room, float* found) const;
    void expect(size_t token) const { table_.expect(token); }

    // The rows computed so far, for one thread, until they are given back.
    std::unique_ptr<NearTokens> take() const;
    void give(std::unique_ptr<NearTokens> known) const;

  private:
    const TokenTable table_;
    std::vector<float> weights_;
    std::vector<int16_t> rows_;  // of the query's tokens
    mutable std::mutex lending_;
    mutable std::vector<std::unique_ptr<NearTokens>> known_;
};

// Rows that are computed once for each token that occurs, in as little memory as possible. For one thread.
class NearTokens {
  public:
    explicit NearTokens(const Similar& similar) : similar_(similar), known_(similar.vocabulary()) {}
    // Finds the rows of these tokens: `numbers` are their row numbers in `table`.
    void look_up(const int32_t* tokens, size_t n);
    const int32_t* numbers() const { return numbers_.data(); }
    const float* table() const { return table_.data(); }

  private:
    const Similar& similar_;
    std::vector<int32_t> known_;  // the row number of each token of the vocabulary; 0: no row yet
    std::vector<float> table_;
    std::vector<int32_t> new_, numbers_;
    std::vector<int16_t> room_;
};

}  // namespace keyblock
