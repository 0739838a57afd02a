#include "blocks.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace keyblock {
namespace {

constexpr int BLOCK_COST = 4, FORCED_COST = 8;
constexpr uint8_t SENTENCE_COST = 1, CLAUSE_COST = 2, LEADING_COST = 4;
constexpr uint8_t ENDS_CLAUSE = 1, LEADS_ON = 2;

struct Place {
    int32_t at;
    int price;
};

void force(std::vector<Place>& places, int32_t until, int32_t longest) {
    while (until - places.back().at > longest) places.push_back({places.back().at + longest, FORCED_COST});
}

// Where the text may be cut, in tokens from its start, and the cost of a cut there.
std::vector<Place> cut_candidates(const std::vector<uint8_t>& costs, int32_t longest) {
    const auto n = static_cast<int32_t>(costs.size());
    std::vector<Place> places{{0, 0}};
    for (int32_t i = 0; i < n; ++i) {
        if (costs[i] == 0) continue;
        force(places, i + 1, longest);
        places.push_back({i + 1, costs[i]});
    }
    force(places, n, longest);
    if (places.back().at < n) places.push_back({n, 0});
    return places;
}

// keyblock.segmenters.split: the bounds of the cheapest split into blocks of at most `longest` tokens.
Ints split(const std::vector<uint8_t>& costs, size_t longest) {
    const auto most = static_cast<int32_t>(longest);
    const std::vector<Place> places = cut_candidates(costs, most);
    std::vector<int> best(places.size());
    std::vector<size_t> before(places.size()), window(places.size());
    size_t first = 0, last = 1;  // of the places within reach that no nearer place beats, cheapest first
    for (size_t i = 1; i < places.size(); ++i) {
        while (places[window[first]].at < places[i].at - most) ++first;
        before[i] = window[first];
        best[i] = best[window[first]] + places[i].price + BLOCK_COST;
        while (last > first && best[window[last - 1]] >= best[i]) --last;
        window[last++] = i;
    }
    Ints bounds;
    for (size_t i = places.size() - 1; i > 0; i = before[i]) bounds.push_back(places[i].at);
    bounds.push_back(0);
    std::reverse(bounds.begin(), bounds.end());
    return bounds;
}

// Counts the tokens that start before each place; the places come in the order of the text.
class TokensBefore {
  public:
    explicit TokensBefore(const std::vector<Piece>& tokens) : tokens_(tokens) {}

    size_t operator()(int32_t place) {
        while (n_ < tokens_.size() && tokens_[n_].head < place) ++n_;
        return n_;
    }

  private:
    const std::vector<Piece>& tokens_;
    size_t n_ = 0;
};

// Whether a cut after each token is inside a stretch between two cuts that is longer than a block; empty if there is no such stretch.
std::vector<uint8_t> inside_long(const std::vector<uint8_t>& costs, size_t longest) {
    std::vector<uint8_t> found;
    const size_t n = costs.size();
    for (size_t start = 0, end = 1; end <= n; ++end) {
        if (end < n && costs[end - 1] == 0) continue;
        if (end - start > longest) {
            found.resize(n);
            std::fill_n(found.begin() + static_cast<std::ptrdiff_t>(start), end - start - 1, uint8_t{1});
        }
        start = end;
    }
    return found;
}

}  // namespace

Segmenter::Segmenter(const Structure& structure, By by, size_t longest, std::vector<uint8_t> by_token)
    : structure_(structure), by_(by), longest_(longest), by_token_(std::move(by_token)) {
    if (longest == 0 || longest > std::numeric_limits<int32_t>::max()) throw std::invalid_argument("a block has no such number of tokens");
}

Ints Segmenter::bounds(const Text& text, const Reading& reading) const {
    Costs costs(reading.tokens.size(), 0);
    switch (by_) {
        case TOKENS: std::transform(reading.tokens.begin(), reading.tokens.end(), costs.begin(), [this](const Piece& token) { return by_token(token.id); }); break;
        case SENTENCES: cut_sentences(text, reading, costs); break;
        case STRUCTURE: cut_structure(text, reading, costs); break;
    }
    return split(costs, longest_);
}

void Segmenter::cut_sentences(const Text& text, const Reading& reading, Costs& costs) const {
    const std::vector<Piece>& tokens = reading.tokens;
    const size_t n = tokens.size();
    for (size_t i = 0; i + 1 < n; ++i)
        if ((by_token(tokens[i].id) & ENDS_CLAUSE) != 0 && tokens[i].tail < tokens[i + 1].head) costs[i] = CLAUSE_COST;
    size_t start = 0, token = 0;  // of the sentence; after it
    const auto close = [&](size_t end) {  // cuts at clauses are possible only in sentences longer than a block
        if (end - start <= longest_) std::fill(costs.begin() + static_cast<std::ptrdiff_t>(start), costs.begin() + static_cast<std::ptrdiff_t>(end), 0);
        start = end;
    };
    for (int32_t end : structure_.sentences.ends(text, reading.marks)) {
        while (token < n && tokens[token].head < end) ++token;
        if (token == start) continue;
        close(token);
        costs[token - 1] = (by_token(tokens[token - 1].id) & LEADS_ON) != 0 ? LEADING_COST : SENTENCE_COST;
    }
    close(n);
}

void Segmenter::cut_structure(const Text& text, const Reading& reading, Costs& costs) const {
    Ints within;  // tokens that end a sentence inside a row
    TokensBefore before(reading.tokens);
    for (const Cut cut : structure_.cuts(text, reading.marks)) {
        const size_t n = before(cut.place);
        if (n == 0) continue;
        if (cut.kind == CLAUSE_CUT) within.push_back(static_cast<int32_t>(n - 1));
        else costs[n - 1] = cut.kind;  // of several cuts after a token, the last one counts
    }
    offer_clauses(text, reading, within, costs);
}

void Segmenter::offer_clauses(const Text& text, const Reading& reading, const Ints& within, Costs& costs) const {
    const std::vector<uint8_t> inside = inside_long(costs, longest_);
    if (inside.empty()) return;
    TokensBefore before(reading.tokens);
    for (const int32_t end : structure_.clauses(text))
        if (const size_t n = before(end); n > 0 && inside[n - 1] != 0) costs[n - 1] = CLAUSE_CUT;
    for (const int32_t token : within)
        if (inside[static_cast<size_t>(token)] != 0) costs[static_cast<size_t>(token)] = SENTENCE_CUT;
}

Blocks blocks_between(const Reading& reading, const Ints& bounds) {
    Blocks blocks;
    const std::vector<Run>& runs = reading.runs;
    size_t first_run = 0;  // the first that ends after the block's start
    blocks.key_bounds.push_back(0);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
        const int32_t first = bounds[i], last = bounds[i + 1];
        int32_t start = reading.tokens[static_cast<size_t>(first)].head;
        const int32_t end = reading.tokens[static_cast<size_t>(last) - 1].tail;
        // a cut may split a character of several tokens: it belongs to the first block, unless the second has no other
        if (i > 0 && blocks.ends.back() < end) start = std::max(start, blocks.ends.back());
        blocks.bounds.push_back(first), blocks.bounds.push_back(last);
        blocks.starts.push_back(start), blocks.ends.push_back(end);
        while (first_run < runs.size() && runs[first_run].tail <= start) ++first_run;
        const size_t n_keys = blocks.keys.size();
        bool cut = false;
        for (size_t run = first_run; run < runs.size() && runs[run].head < end; ++run) {
            const auto& [head, tail, key] = runs[run];
            cut |= head < start || tail > end || tail - head > static_cast<int32_t>(LONGEST);
            if (key != 0) blocks.keys.push_back(key);
        }
        if (cut) {
            blocks.keys.resize(n_keys);
            blocks.asked.push_back(static_cast<int32_t>(i));
        }
        blocks.key_bounds.push_back(static_cast<int32_t>(blocks.keys.size()));
    }
    return blocks;
}

}  // namespace keyblock
