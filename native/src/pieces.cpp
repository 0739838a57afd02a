#include "pieces.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace keyblock {
namespace {

constexpr size_t COMMON = 0x250;  // symbols that are found without a hash table: Latin letters, and all symbols for bytes
constexpr double UNKNOWN_PENALTY = 10;

}  // namespace

WordPiece::WordPiece(const Characters& characters, const Vocabulary& vocabulary)
    : characters_(characters), unknown_(vocabulary.unknown), most_(vocabulary.most) {
    const auto& prefix = vocabulary.prefix;
    for (const auto& [token, id] : vocabulary.tokens) {
        if (token.empty()) continue;
        tokens_.add(BEGINNING, token, id);
        if (token.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), token.begin()))
            tokens_.add(CONTINUING, token, id, prefix.size());
    }
}

bool WordPiece::cut(const Code* word, size_t size, std::vector<Piece>& found) const {
    const size_t first = found.size();
    const auto whole = Piece{unknown_, 0, static_cast<int32_t>(size)};
    if (size > most_) {
        found.push_back(whole);
        return true;
    }
    static thread_local Codes normal;
    normal.resize(size);
    for (size_t i = 0; i < size; ++i) normal[i] = characters_.normal(word[i]);
    for (size_t start = 0; start < size;) {
        auto [length, id] = tokens_.longest(start == 0 ? BEGINNING : CONTINUING, normal.data() + start, size - start);
        if (length == 0) {
            found.resize(first);
            found.push_back(whole);
            return true;
        }
        found.push_back({id, static_cast<int32_t>(start), static_cast<int32_t>(start + length)});
        start += length;
    }
    return true;
}

Merges::Merges(const std::vector<std::pair<Code, int32_t>>& symbols, const std::vector<Merge>& merges,
               const std::vector<std::pair<Codes, int32_t>>& whole)
    : common_(COMMON, -1), rules_(merges.size()) {
    for (auto [symbol, id] : symbols) (symbol < COMMON ? common_[symbol] : symbols_[symbol]) = id;
    int32_t rank = 0;
    for (const Merge& merge : merges) rules_.add(pair_of(merge.left, merge.right), {}) = {rank++, merge.joined};
    for (const auto& [spelling, id] : whole) whole_.add(0, spelling, id);
}

bool Merges::cut(const Code* word, size_t size, std::vector<Piece>& found) const {
    struct Symbol {
        int32_t id, before, next, tail;
        bool gone;
    };
    struct Candidate {
        int32_t rank, at, joined;
        bool operator<(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
    };
    const auto n = static_cast<int32_t>(size);
    if (const auto [length, id] = whole_.longest(0, word, size); length == size && size > 0) {
        found.push_back({id, 0, n});
        return true;
    }
    static thread_local std::vector<Symbol> symbols;
    static thread_local std::vector<Candidate> heap;
    symbols.clear(), heap.clear();
    for (int32_t i = 0; i < n; ++i) {
        int32_t id = -1;
        if (word[i] < COMMON) id = common_[word[i]];
        else if (const auto place = symbols_.find(word[i]); place != symbols_.end()) id = place->second;
        if (id < 0) return false;
        symbols.push_back({id, i - 1, i + 1 < n ? i + 1 : -1, i + 1, false});
    }
    const auto offer = [&](int32_t at) {
        if (at < 0 || symbols[at].next < 0) return;
        const Rule* rule = this->rule(symbols[at].id, symbols[symbols[at].next].id);
        if (rule == nullptr) return;
        heap.push_back({rule->rank, at, rule->joined});
        std::push_heap(heap.begin(), heap.end());
    };
    for (int32_t i = 0; i + 1 < n; ++i) offer(i);
    while (!heap.empty()) {
        const Candidate best = heap.front();
        std::pop_heap(heap.begin(), heap.end());
        heap.pop_back();
        Symbol& left = symbols[best.at];
        if (left.gone || left.next < 0) continue;
        Symbol& right = symbols[left.next];
        const Rule* rule = this->rule(left.id, right.id);
        if (rule == nullptr || rule->joined != best.joined) continue;  // of a pair that no longer exists
        left.id = best.joined, left.tail = right.tail, left.next = right.next, right.gone = true;
        if (left.next >= 0) symbols[left.next].before = best.at;
        offer(left.before), offer(best.at);
    }
    for (int32_t at = 0; at >= 0 && at < n; at = symbols[at].next) found.push_back({symbols[at].id, at, symbols[at].tail});
    return true;
}

Unigram::Unigram(const std::vector<Token>& vocabulary, int32_t unknown) : unknown_(unknown) {
    double least = std::numeric_limits<double>::infinity();
    for (const Token& token : vocabulary) {
        trie_.add(0, token.spelling, static_cast<int32_t>(scores_.size()));
        scores_.push_back(token.score);
        least = std::min(least, token.score);
    }
    unknown_score_ = least - UNKNOWN_PENALTY;
}

bool Unigram::cut(const Code* word, size_t size, std::vector<Piece>& found) const {
    struct Way {
        double score = 0;
        int32_t from = -1, id = -1;
    };
    static thread_local std::vector<Way> best;  // up to each place
    best.assign(size + 1, {});
    const auto offer = [&](size_t from, size_t to, double score, int32_t id) {
        score += best[from].score;
        if (best[to].from < 0 || score > best[to].score) best[to] = {score, static_cast<int32_t>(from), id};
    };
    for (size_t start = 0; start < size; ++start) {
        bool alone = false;  // whether the symbol is a token
        trie_.each(0, word + start, size - start, [&](size_t length, int32_t id) {
            offer(start, start + length, scores_[static_cast<size_t>(id)], id);
            alone |= length == 1;
        });
        if (!alone) offer(start, start + 1, unknown_score_, unknown_);
    }
    const size_t first = found.size();
    for (auto end = static_cast<int32_t>(size); end > 0; end = best[static_cast<size_t>(end)].from) {
        const auto [_, from, id] = best[static_cast<size_t>(end)];
        if (id == unknown_ && found.size() > first && found.back().id == unknown_) found.back().head = from;
        else found.push_back({id, from, end});
    }
    std::reverse(found.begin() + static_cast<std::ptrdiff_t>(first), found.end());
    return true;
}

}  // namespace keyblock
