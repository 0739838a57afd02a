// The blocks of a document that are chosen for a query, and their sequences: keyblock.pipeline, for one query and many documents.
//
// Each number is computed as NumPy does in keyblock.prepared and keyblock.selectors: by the same operations in the same order. So scores
// are equal bit for bit, and blocks that tie there tie here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tables.hpp"
#include "vectors.hpp"

namespace keyblock {

constexpr size_t FEATURES = 5;  // keyblock.fusion.FEATURES, the logit left out

template <class T>
struct Span {
    const T* data = nullptr;
    size_t size = 0;
};

// Numbers of keys in a list of them.
using Keys = HashTable<int32_t>;
Keys keys_of(Span<int64_t> keys);

// keyblock.selectors.Bm25 with the idf of documents.
struct Bm25 {
    double k1, b;
    bool operator==(const Bm25& other) const { return k1 == other.k1 && b == other.b; }
};

// keyblock.selectors.Hybrid, the part after the scores of terms.
struct Hybrid {
    double terms, vectors, low_confidence, soft, exact, near;
    bool mass;
    size_t exact_blocks;
};

// keyblock.pooled and keyblock.text.alphabets: the terms that a document shares with the query, and whether its language was learned.
struct SharedRules {
    Bm25 bm25;
    size_t kept, looked_up, fewest;
    double share;
    int32_t clearly;
    std::vector<int8_t> kinds;  // of tokens: above 0 in a script that the model has learned, below 0 in any other
    Keys known;                 // terms that the table of frequencies has
};

struct Rules {
    Bm25 evidence, terms;          // `terms` selects, or the hybrid uses it
    std::optional<Hybrid> hybrid;
    bool joint;
    size_t passages;
    std::optional<SharedRules> shared;
};

// keyblock.prepared.WeighedQuery. Arrays without a size have one number for each term, or for each dimension.
struct Query {
    Span<int64_t> terms;
    const double *idf, *rare;
    double mass;
    Span<double> vector;   // in whole numbers
    const Similar* similar;  // null if tokens are not compared
    bool foreign;
    std::vector<int32_t> head, tail;  // of a sequence
    size_t room;                      // beside both
    double unit;                      // the product of two equal vectors of length 1
};

// keyblock.prepared.PreparedDocument.
struct Document {
    Span<int32_t> tokens, bounds;
    Span<int64_t> terms;
    Span<int32_t> term_bounds, title;
    Span<int8_t> vectors;

    size_t blocks() const { return bounds.size / 2; }
    // Whether the arrays belong together, and all tokens are below `vocabulary`. 0 dimensions: vectors are not needed.
    bool whole(size_t dimensions, size_t vocabulary) const;
};

enum By : int8_t { NOTHING, EVIDENCE, POSITION };

// The selections of several documents, one after the other.
struct Chosen {
    std::vector<int32_t> ids;
    std::vector<int64_t> sequence_ends;       // in `ids`
    std::vector<int64_t> blocks, block_ends;  // of sequences, best first
    std::vector<uint8_t> cut;                 // of sequences
    std::vector<int64_t> sequences;           // number for each document
    std::vector<int64_t> taken, n_taken;      // of documents, best first
    std::vector<double> scores, evidence;
    std::vector<int8_t> by;
    std::vector<float> counts;  // of `kept` blocks, term by term
    std::vector<int64_t> kept, having;
    std::vector<uint8_t> foreign, unknown;
};

struct Packed {
    size_t n_taken;
    bool cut;  // whether the last of them is cut
};

// Chooses the blocks of one document after the other, in one thread.
class QueryDocument {
  public:
    QueryDocument(const Rules& rules, const Query& query) : rules_(rules), query_(query), rows_(keys_of(query.terms)), near_tokens_(query.similar == nullptr ? nullptr : query.similar->take()) {}
    ~QueryDocument() {
        if (query_.similar != nullptr) query_.similar->give(std::move(near_tokens_));
    }
    QueryDocument(const QueryDocument&) = delete;
    QueryDocument& operator=(const QueryDocument&) = delete;
    void meet(const Document& document, Chosen& found);

  private:
    void count(const Document& document);
    void saturate(const Bm25& bm25, const Document& document, std::vector<double>& found) const;
    void lexical(const Bm25& bm25, const Document& document, std::vector<double>& found);
    void cosines(const Document& document);
    void nearest(const Document& document);
    void combine(const Hybrid& hybrid, const Document& document);
    double lacking();
    void held_share(size_t most);
    bool evident() const;
    template <class Value>
    void weighted_sum(const double* weights, Value&& value, std::vector<double>& found);
    void evidence_of(Chosen& found) const;
    Packed pack(const Document& document, const int64_t* order, size_t n, Chosen& found) const;
    void shared_terms(const Document& document, Chosen& found);
    bool foreign(const Document& document) const;
    bool known(const Document& document) const;

    const Rules& rules_;
    const Query& query_;
    const Keys rows_;
    std::unique_ptr<NearTokens> near_tokens_;  // none if tokens are not compared
    size_t blocks_ = 0;
    std::vector<double> counts_, cells_, saturated_;                // a row for each term
    std::vector<double> lexical_, scores_, cosines_, near_, sums_;  // of blocks
    std::vector<float> best_, by_token_, near_sums_;
    std::vector<int64_t> order_, having_;
};

}  // namespace keyblock
