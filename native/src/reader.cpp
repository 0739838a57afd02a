#include "reader.hpp"

#include <algorithm>

namespace keyblock {

struct WordReader::Work {
    const Odds& given;
    std::shared_ptr<Known> known;
    Code word[LONGEST] = {};
    std::vector<Code> long_word;
    std::vector<Piece> pieces;
    std::vector<int64_t> keys;
};

void Reading::clear() {
    for (Ints* some : {&ids, &heads, &tails, &missing}) some->clear();
    runs.cut(0);
}

std::shared_ptr<Known> WordReader::known() const {
    std::lock_guard lock(renewing_);
    if (known_->full()) known_ = std::make_shared<Known>();  // whoever reads in the old one keeps it so long
    return known_;
}

// Of the first `size` characters of work.word: without ODD ones, as folded.
WordReader::Found WordReader::look_up(size_t size, bool has_term, Work& work) const {
    const uint64_t hash = hash_of(work.word, size);
    const Entry* entry = work.known->find(work.word, size, hash);
    if (entry == nullptr) {
        work.pieces.clear();
        model_->cut(work.word, size, work.pieces);
        work.keys.assign(1, has_term ? analyzer_->key(work.word, size) : 0);
        entry = work.known->add({work.word, size, work.pieces, work.keys}, hash);
    }
    if (entry == nullptr) return {work.pieces.data(), work.pieces.size(), work.keys.data(), work.keys.size()};
    return {entry->pieces(), entry->n_pieces, entry->keys(), entry->n_keys};
}

namespace {

void add_pieces(const Piece* pieces, size_t n, size_t start, Reading& found) {
    const auto from = static_cast<int32_t>(start);
    for (size_t i = 0; i < n; ++i) {
        found.ids.push_back(pieces[i].id);
        found.heads.push_back(from + pieces[i].head);
        found.tails.push_back(from + pieces[i].tail);
    }
}

}  // namespace

template <class Unit>
void WordReader::plain(View<Unit> text, size_t start, size_t end, Work& work, Reading& found) const {
    const size_t n_runs = found.runs.keys.size();
    bool other_runs = false;  // whether a run is no word
    for (size_t head = start, tail; head < end; head = tail) {
        uint32_t all = characters.flags(text.data[head]), any = all, next = 0;
        tail = head + 1;
        if ((all & KIND) == LETTER)
            for (; tail < end && ((next = characters.flags(text.data[tail])) & KIND) == LETTER; ++tail) all &= next, any |= next;
        const auto joins = [&](size_t at) { return characters.is(text.data[at], WORD); };
        const bool is_run = (all & WORD) != 0 && !(head > start && joins(head - 1)) && !(tail < end && joins(tail));
        other_runs |= (any & WORD) != 0 && !is_run;
        const size_t size = tail - head;
        if (size > LONGEST) {
            work.long_word.assign(text.data + head, text.data + tail);
            work.pieces.clear();
            model_->cut(work.long_word.data(), size, work.pieces);
            add_pieces(work.pieces.data(), work.pieces.size(), head, found);
            if (is_run) found.runs.add(head, tail, 0);
            continue;
        }
        for (size_t i = 0; i < size; ++i) work.word[i] = characters.folded(text.data[head + i]);
        const Found word = look_up(size, (all & WORD) != 0, work);
        add_pieces(word.pieces, word.n_pieces, head, found);
        if (is_run) found.runs.add(head, tail, word.keys[0]);
    }
    if (other_runs) {
        found.runs.cut(n_runs);
        runs(text, start, end, work, found.runs);
    }
}

template <class Unit>
void WordReader::runs(View<Unit> text, size_t start, size_t end, Work& work, Runs& found) const {
    for (size_t head = start, tail; head < end; head = tail) {
        tail = head + 1;
        if (!characters.is(text.data[head], WORD)) continue;
        while (tail < end && characters.is(text.data[tail], WORD)) ++tail;
        const size_t size = tail - head;
        if (size > LONGEST) {
            found.add(head, tail, 0);
            continue;
        }
        for (size_t i = 0; i < size; ++i) work.word[i] = characters.folded(text.data[head + i]);
        found.add(head, tail, look_up(size, true, work).keys[0]);
    }
}

template <class Unit>
void WordReader::odd(View<Unit> text, size_t start, size_t end, Work& work, Reading& found) const {
    const size_t size = end - start;
    const auto add_runs = [&](const int64_t* keys, size_t n) {
        for (size_t i = 0; i < n; ++i) found.runs.add(start, end, keys[i]);
    };
    uint64_t hash = 0;
    if (size <= LONGEST) {
        std::copy(text.data + start, text.data + end, work.word);
        hash = hash_of(work.word, size);
        if (const Entry* entry = work.known->find(work.word, size, hash)) {
            add_pieces(entry->pieces(), entry->n_pieces, start, found);
            add_runs(entry->keys(), entry->n_keys);
            return;
        }
    }
    const auto place = work.given.find(std::u32string(text.data + start, text.data + end));
    if (place == work.given.end()) {
        found.missing.push_back(static_cast<int32_t>(start));
        found.missing.push_back(static_cast<int32_t>(end));
        return;
    }
    const Odd& read = place->second;
    if (size <= LONGEST) work.known->add({work.word, size, read.pieces, read.keys}, hash);
    add_pieces(read.pieces.data(), read.pieces.size(), start, found);
    add_runs(read.keys.data(), read.keys.size());
}

template <class Unit>
void WordReader::read(View<Unit> text, const Odds& given, Reading& found) const {
    Work work{given, known()};
    for (size_t start = 0, end; start < text.size; start = end) {
        end = start + 1;
        Kind kind = characters.kind(text.data[start]);
        if (kind == SPACE) continue;
        bool has_odd = kind == ODD;
        for (; end < text.size && (kind = characters.kind(text.data[end])) != SPACE; ++end) has_odd |= kind == ODD;
        if (has_odd) odd(text, start, end, work, found);
        else plain(text, start, end, work, found);
    }
}

template <class Unit>
void WordReader::keys_between(View<Unit> text, size_t start, size_t end, std::vector<int64_t>& found) const {
    std::vector<Code> run;
    const auto is_word = [&](size_t at) { return characters.is(text.data[at], WORD); };
    for (size_t head = start, tail; head < end; head = tail) {
        tail = head + 1;
        if (!is_word(head)) continue;
        while (tail < end && is_word(tail)) ++tail;
        run.assign(text.data + head, text.data + tail);
        if (const int64_t key = analyzer_->key(run.data(), run.size())) found.push_back(key);
    }
}

template void WordReader::read(View<uint8_t>, const Odds&, Reading&) const;
template void WordReader::read(View<uint16_t>, const Odds&, Reading&) const;
template void WordReader::read(View<uint32_t>, const Odds&, Reading&) const;
template void WordReader::keys_between(View<uint8_t>, size_t, size_t, std::vector<int64_t>&) const;
template void WordReader::keys_between(View<uint16_t>, size_t, size_t, std::vector<int64_t>&) const;
template void WordReader::keys_between(View<uint32_t>, size_t, size_t, std::vector<int64_t>&) const;

}  // namespace keyblock
