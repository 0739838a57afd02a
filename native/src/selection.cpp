#include "selection.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "processors.hpp"

namespace keyblock {
namespace {

constexpr size_t BEST = 3;      // blocks of the feature `top_blocks`

// NumPy's sum of contiguous numbers: pairwise sums of up to 128 numbers, each in eight columns.
template <class T>
T sum(const T* values, size_t n) {
    if (n < 8) return std::accumulate(values, values + n, T{0});
    if (n > 128) {
        const size_t half = n / 2 - n / 2 % 8;
        return sum(values, half) + sum(values + half, n - half);
    }
    T column[8];
    std::copy_n(values, 8, column);
    size_t at = 8;
    for (; at + 8 <= n; at += 8)
        for (size_t i = 0; i < 8; ++i) column[i] += values[at + i];
    const T all = ((column[0] + column[1]) + (column[2] + column[3])) + ((column[4] + column[5]) + (column[6] + column[7]));
    return std::accumulate(values + at, values + n, all);
}

// NumPy's sum of each column: row by row, except for a single column, whose numbers are contiguous.
template <class T>
void column_sums(const T* rows, size_t n, size_t columns, T* found) {
    if (columns == 1) {
        *found = sum(rows, n);
        return;
    }
    std::fill(found, found + columns, T{0});
    for (size_t i = 0; i < n; ++i, rows += columns)
        for (size_t column = 0; column < columns; ++column) found[column] += rows[column];
}

// Rows of a table, by their numbers.
struct Rows {
    const float* table;
    const int32_t* numbers;
    size_t size, columns;
    const float* operator[](size_t i) const { return table + static_cast<size_t>(numbers[i]) * columns; }
};

// The highest number of each column, at least 0, of `parts` that stay in registers; the last part may overlap the one before it.
template <size_t WIDTH, size_t PARTS>
INLINED void highest_in_parts(const Rows& rows, size_t columns, float* found) {
    float best[PARTS][WIDTH] = {};
    const auto start = [=](size_t part) { return std::min(part * WIDTH, columns - WIDTH); };
    for (size_t i = 0; i < rows.size; ++i) {
        const float* row = rows[i];
        for (size_t part = 0; part < PARTS; ++part) {
            const float* values = row + start(part);
            for (size_t j = 0; j < WIDTH; ++j) best[part][j] = values[j] > best[part][j] ? values[j] : best[part][j];
        }
    }
    for (size_t part = 0; part < PARTS; ++part) std::copy_n(best[part], WIDTH, found + start(part));
}

// The highest number of each column, at least 0.
INLINED void highest(const Rows& rows, size_t columns, float* found) {
    switch (columns < 8 ? 0 : (columns + 7) / 8) {
        case 1: return highest_in_parts<8, 1>(rows, columns, found);
        case 2: return highest_in_parts<8, 2>(rows, columns, found);
        case 3: return highest_in_parts<8, 3>(rows, columns, found);
        case 4: return highest_in_parts<8, 4>(rows, columns, found);
    }
    if (columns >= 4 && columns < 8) return highest_in_parts<4, 2>(rows, columns, found);
    for (size_t column = 0; column < columns; ++column) {
        float best = 0;
        for (size_t i = 0; i < rows.size; ++i) best = std::max(best, rows[i][column]);
        found[column] = best;
    }
}

// The product of integers, so that the order does not matter.
INLINED double product(const double* whole, const int8_t* numbers, size_t n) {
    double column[16] = {};
    size_t at = 0;
    for (; at + 16 <= n; at += 16)
        for (size_t i = 0; i < 16; ++i) column[i] += whole[at + i] * static_cast<double>(numbers[at + i]);
    double all = std::accumulate(column, column + 16, 0.0);
    for (; at < n; ++at) all += whole[at] * static_cast<double>(numbers[at]);
    return all;
}

// keyblock.selectors.differ.
bool differ(const std::vector<double>& scores) {
    const auto [least, most] = std::minmax_element(scores.begin(), scores.end());
    return !scores.empty() && *most > *least;
}

double highest_of(const std::vector<double>& scores) { return *std::max_element(scores.begin(), scores.end()); }

// keyblock.selectors.rank_blocks.
void rank(const std::vector<double>& scores, std::vector<int64_t>& order) {
    order.resize(scores.size());
    std::iota(order.begin(), order.end(), 0);
    const double* of = scores.data();
    std::stable_sort(order.begin(), order.end(), [of](int64_t one, int64_t other) { return of[one] > of[other]; });
}

bool ascending(const Span<int32_t>& bounds, size_t end) {
    return bounds.size > 0 && bounds.data[0] == 0 && static_cast<size_t>(bounds.data[bounds.size - 1]) == end &&
           std::is_sorted(bounds.data, bounds.data + bounds.size);
}

}  // namespace

Keys keys_of(Span<int64_t> keys) {
    Keys found(keys.size);
    for (size_t i = 0; i < keys.size; ++i) found.add(static_cast<uint64_t>(keys.data[i]), static_cast<int32_t>(i));
    return found;
}

bool Document::whole(size_t dimensions, size_t vocabulary) const {
    const auto n = static_cast<int32_t>(tokens.size);
    if (bounds.size % 2 != 0) return false;
    for (size_t i = 0; i < bounds.size; i += 2)
        if (bounds.data[i] < 0 || bounds.data[i] > bounds.data[i + 1] || bounds.data[i + 1] > n) return false;
    if (blocks() > 0 && (term_bounds.size != blocks() + 1 || !ascending(term_bounds, terms.size))) return false;
    bool known = true;
    for (size_t i = 0; i < tokens.size; ++i) known &= static_cast<uint32_t>(tokens.data[i]) < vocabulary;
    return known && (dimensions == 0 || vectors.size == blocks() * dimensions);
}

// keyblock.pipeline.Pipeline._select.
void QueryDocument::meet(const Document& document, Chosen& found) {
    blocks_ = document.blocks();
    count(document);
    lexical(rules_.evidence, document, lexical_);
    if (rules_.terms == rules_.evidence) scores_ = lexical_;
    else lexical(rules_.terms, document, scores_);
    if (query_.similar != nullptr) nearest(document);
    if (rules_.hybrid) combine(*rules_.hybrid, document);
    rank(scores_, order_);

    const size_t most = rules_.passages == 0 ? blocks_ : std::min(rules_.passages, blocks_), sequences_before = found.cut.size();
    Packed packed{most, false};
    if (rules_.joint) packed = pack(document, order_.data(), blocks_, found);
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(packed.n_taken);
    found.taken.insert(found.taken.end(), order_.begin(), end);
    found.n_taken.push_back(static_cast<int64_t>(packed.n_taken));
    if (!rules_.joint) {
        std::sort(order_.begin(), end);
        for (size_t i = 0; i < most; ++i) packed.cut |= pack(document, &order_[i], 1, found).cut;
    }
    found.sequences.push_back(static_cast<int64_t>(found.cut.size() - sequences_before));
    const bool all = blocks_ < 2 || (packed.n_taken == blocks_ && !packed.cut);
    found.by.push_back(all ? NOTHING : evident() ? EVIDENCE : POSITION);
    found.scores.insert(found.scores.end(), scores_.begin(), scores_.end());
    evidence_of(found);
    if (rules_.shared) shared_terms(document, found);
}

// keyblock.prepared.term_counts.
void QueryDocument::count(const Document& document) {
    counts_.assign(query_.terms.size * blocks_, 0.0);
    having_.assign(query_.terms.size, 0);
    for (size_t block = 0; block < blocks_; ++block)
        for (int32_t i = document.term_bounds.data[block]; i < document.term_bounds.data[block + 1]; ++i) {
            const int32_t* row = rows_.find(static_cast<uint64_t>(document.terms.data[i]));
            if (row != nullptr && counts_[static_cast<size_t>(*row) * blocks_ + block]++ == 0) ++having_[static_cast<size_t>(*row)];
        }
}

// keyblock.selectors.Bm25.saturated.
void QueryDocument::saturate(const Bm25& bm25, const Document& document, std::vector<double>& found) const {
    const double mean = static_cast<double>(document.terms.size) / static_cast<double>(blocks_), average = mean == 0 ? 1.0 : mean;
    const int32_t* bounds = document.term_bounds.data;
    found.assign(counts_.size(), 0.0);
    for (size_t block = 0; block < blocks_; ++block) {
        const auto length = static_cast<double>(bounds[block + 1] - bounds[block]);
        const double saturation = bm25.k1 * (1 - bm25.b + bm25.b * length / average);
        for (size_t cell = block; cell < counts_.size(); cell += blocks_)
            if (counts_[cell] > 0) found[cell] = counts_[cell] / (saturation + counts_[cell]);
    }
}

// keyblock.selectors.Bm25.of.
void QueryDocument::lexical(const Bm25& bm25, const Document& document, std::vector<double>& found) {
    saturate(bm25, document, saturated_);
    weighted_sum(query_.idf, [this](size_t cell) { return saturated_[cell]; }, found);
}

// keyblock.prepared.weighted_sum.
template <class Value>
void QueryDocument::weighted_sum(const double* weights, Value&& value, std::vector<double>& found) {
    const size_t n = query_.terms.size;
    cells_.resize(n * blocks_);
    found.assign(blocks_, 0.0);
    if (blocks_ == 0) return;
    for (size_t term = 0, cell = 0; term < n; ++term)
        for (size_t block = 0; block < blocks_; ++block, ++cell) cells_[cell] = weights[term] * value(cell);
    column_sums(cells_.data(), n, blocks_, found.data());
}

// keyblock.prepared.similarities.
void QueryDocument::cosines(const Document& document) {
    const size_t blocks = blocks_, dimensions = query_.vector.size;
    cosines_.resize(blocks);
    const double *query = query_.vector.data, unit = query_.unit;
    const int8_t* vectors = document.vectors.data;
    double* found = cosines_.data();
    for_this_processor([=]() INLINED_BODY {
        for (size_t block = 0; block < blocks; ++block) found[block] = product(query, vectors + block * dimensions, dimensions) / unit;
    });
}

// keyblock.prepared.QueryDocument.near.
void QueryDocument::nearest(const Document& document) {
    const size_t tokens = query_.similar->size();
    near_.assign(blocks_, 0.0);
    if (tokens == 0 || blocks_ == 0) return;
    near_tokens_->look_up(document.tokens.data, document.tokens.size);
    by_token_.resize(tokens * blocks_);
    near_sums_.resize(blocks_);
    best_.resize(tokens);
    for (size_t block = 0; block < blocks_; ++block) {
        const int32_t start = document.bounds.data[2 * block], end = document.bounds.data[2 * block + 1];
        const Rows rows{near_tokens_->table(), near_tokens_->numbers() + start, static_cast<size_t>(end - start), tokens};
        float* best = best_.data();
        for_this_processor([=]() INLINED_BODY { highest(rows, tokens, best); });
        for (size_t token = 0; token < tokens; ++token) by_token_[token * blocks_ + block] = best_[token];
    }
    column_sums(by_token_.data(), tokens, blocks_, near_sums_.data());
    std::copy(near_sums_.begin(), near_sums_.end(), near_.begin());
}

// keyblock.selectors.Hybrid.combined, in place, from the scores of terms.
void QueryDocument::combine(const Hybrid& hybrid, const Document& document) {
    cosines(document);
    const double mass = hybrid.mass && query_.mass != 0 ? query_.mass : 1.0;
    const double vectors = hybrid.vectors + (hybrid.low_confidence != 0 ? hybrid.low_confidence * lacking() : 0.0);
    for (size_t block = 0; block < blocks_; ++block) {
        scores_[block] = hybrid.terms * (scores_[block] / mass) + vectors * cosines_[block];
        if (hybrid.soft != 0) scores_[block] += hybrid.soft * near_[block];
    }
    const double* rare = query_.rare;
    if (hybrid.exact == 0 || std::none_of(rare, rare + query_.terms.size, [](double weight) { return weight != 0; })) return;
    held_share(hybrid.exact_blocks != 0 ? hybrid.exact_blocks : blocks_);
    for (size_t block = 0; block < blocks_; ++block) scores_[block] += hybrid.exact * sums_[block];
}

// keyblock.selectors.held_share.
void QueryDocument::held_share(size_t most) {
    std::vector<double> telling(query_.rare, query_.rare + query_.terms.size), occurring;
    for (size_t term = 0; term < telling.size(); ++term) {
        const double* held = counts_.data() + term * blocks_;
        size_t places = 0;
        for (size_t block = 0; block < blocks_; ++block) places += held[block] > 0 && (block == 0 || held[block - 1] == 0);
        if (places > 0) occurring.push_back(telling[term]);
        if (places > most) telling[term] = 0;
    }
    weighted_sum(telling.data(), [this](size_t cell) { return counts_[cell] > 0 ? 1.0 : 0.0; }, sums_);
    const double all = sum(occurring.data(), occurring.size()), whole = all == 0 ? 1.0 : all;
    for (double& share : sums_) share /= whole;
}

// keyblock.selectors.lacking.
double QueryDocument::lacking() {
    if (query_.mass == 0) return 1.0;
    weighted_sum(query_.idf, [this](size_t cell) { return counts_[cell] > 0 ? 1.0 : 0.0; }, sums_);
    const double held = sums_.empty() ? 0.0 : std::max(highest_of(sums_), 0.0);
    return std::max(1.0 - held / query_.mass, 0.0);
}

// keyblock.selectors.Selector.tells_apart.
bool QueryDocument::evident() const {
    if (blocks_ < 2) return false;
    if (!rules_.hybrid) return differ(scores_);
    if (differ(lexical_) || !differ(scores_)) return differ(lexical_);
    const std::vector<double>& nearness = rules_.hybrid->soft != 0 ? near_ : cosines_;
    return differ(nearness) && highest_of(nearness) >= rules_.hybrid->near;
}

// keyblock.fusion.evidence_of.
void QueryDocument::evidence_of(Chosen& found) const {
    if (blocks_ == 0) {
        found.evidence.resize(found.evidence.size() + FEATURES);
        return;
    }
    std::vector<double> top(lexical_), occurring(query_.terms.size);
    const size_t best = std::min(BEST, blocks_);
    std::partial_sort(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(best), top.end(), std::greater<double>());
    std::reverse(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(best));
    for (size_t term = 0; term < occurring.size(); ++term) occurring[term] = having_[term] > 0 ? query_.idf[term] : 0.0;
    const double coverage = query_.mass == 0 ? 0.0 : sum(occurring.data(), occurring.size()) / query_.mass;
    const double nearness = query_.similar != nullptr ? highest_of(near_) : 0.0;
    const double features[FEATURES] = {top[best - 1], sum(top.data(), best) / 3, coverage, nearness, query_.mass};
    found.evidence.insert(found.evidence.end(), features, features + FEATURES);
}

// keyblock.packing.pack: the best blocks for which there is room, best first.
Packed QueryDocument::pack(const Document& document, const int64_t* order, size_t n, Chosen& found) const {
    const size_t titled = std::min(document.title.size, query_.room / 2), room = query_.room - titled;
    const int32_t* bounds = document.bounds.data;
    const auto length = [=](int64_t block) { return static_cast<size_t>(bounds[2 * block + 1] - bounds[2 * block]); };
    size_t n_taken = 0, filled = 0, kept = 0;
    while (n_taken < n && filled < room) {
        kept = std::min(length(order[n_taken]), room - filled);
        filled += length(order[n_taken++]);
    }
    const bool cut = n_taken > 0 && kept < length(order[n_taken - 1]);
    std::vector<int64_t> taken(order, order + n_taken);
    found.blocks.insert(found.blocks.end(), taken.begin(), taken.end());
    found.block_ends.push_back(static_cast<int64_t>(found.blocks.size()));
    const int64_t last = n_taken > 0 ? taken.back() : -1;
    std::sort(taken.begin(), taken.end());
    found.ids.insert(found.ids.end(), query_.head.begin(), query_.head.end());
    found.ids.insert(found.ids.end(), document.title.data, document.title.data + titled);
    for (const int64_t block : taken) {
        const int32_t* start = document.tokens.data + bounds[2 * block];
        found.ids.insert(found.ids.end(), start, start + (block == last ? kept : length(block)));
    }
    found.ids.insert(found.ids.end(), query_.tail.begin(), query_.tail.end());
    found.sequence_ends.push_back(static_cast<int64_t>(found.ids.size()));
    found.cut.push_back(cut);
    return {n_taken, cut};
}

// keyblock.pooled.shared_terms, with the flags of keyblock.pipeline.Pipeline._shared.
void QueryDocument::shared_terms(const Document& document, Chosen& found) {
    const SharedRules& shared = *rules_.shared;
    const bool foreign = query_.foreign || this->foreign(document);
    found.foreign.push_back(foreign);
    found.unknown.push_back(!foreign && !known(document));
    found.having.insert(found.having.end(), having_.begin(), having_.end());
    saturate(shared.bm25, document, saturated_);
    std::vector<int64_t> kept(blocks_);
    std::iota(kept.begin(), kept.end(), 0);
    if (blocks_ > shared.kept) {
        sums_.resize(blocks_);
        column_sums(saturated_.data(), query_.terms.size, blocks_, sums_.data());
        rank(sums_, kept);
        kept.resize(shared.kept);
        std::sort(kept.begin(), kept.end());
    }
    for (size_t term = 0; term < query_.terms.size; ++term)
        for (const int64_t block : kept) found.counts.push_back(static_cast<float>(saturated_[term * blocks_ + static_cast<size_t>(block)]));
    found.kept.push_back(static_cast<int64_t>(kept.size()));
}

// keyblock.text.alphabets.Alphabets.foreign.
bool QueryDocument::foreign(const Document& document) const {
    const int8_t* kinds = rules_.shared->kinds.data();
    int32_t learned = 0, foreign = 0;
    for (size_t i = 0; i < document.tokens.size; ++i) {
        const int8_t kind = kinds[document.tokens.data[i]];
        learned += kind > 0;
        foreign += kind < 0;
    }
    return foreign >= rules_.shared->clearly && foreign > learned;
}

// keyblock.pooled.knows_language.
bool QueryDocument::known(const Document& document) const {
    const SharedRules& shared = *rules_.shared;
    const size_t n = document.terms.size, asked = std::min(n, shared.looked_up);
    if (n < shared.fewest) return true;
    const double step = static_cast<double>(n - 1) / static_cast<double>(asked - 1);
    size_t found = 0;
    for (size_t i = 0; i < asked; ++i) {
        const size_t place = i + 1 == asked ? n - 1 : static_cast<size_t>(static_cast<double>(i) * step);
        found += shared.known.find(static_cast<uint64_t>(document.terms.data[place])) != nullptr;
    }
    return static_cast<double>(found) / static_cast<double>(asked) >= shared.share;
}

}  // namespace keyblock
