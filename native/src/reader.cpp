#include "reader.hpp"

#include <algorithm>

#include "known.hpp"

namespace keyblock {

WordReader::WordReader(const Characters& characters, std::unique_ptr<Model> model, std::unique_ptr<Analyzer> analyzer)
    : characters(characters), model_(std::move(model)), analyzer_(std::move(analyzer)), known_(std::make_shared<Known>()) {}

std::shared_ptr<Known> WordReader::known() const {
    std::lock_guard lock(renewing_);
    if (known_->full()) known_ = std::make_shared<Known>();  // whoever reads in the old one keeps it so long
    return known_;
}

template <class Unit>
struct WordReader::Call {
    const WordReader& by;
    const View<Unit> text;
    const Odds& given;
    Reading& found;
    std::shared_ptr<Known> known = by.known();
    Spelling word{};
    std::vector<Code> long_word{};  // one that is too long to be remembered
    std::vector<Piece> pieces{};
    std::vector<int64_t> keys{};

    struct Found {
        const Piece* pieces;
        size_t n_pieces;
        int64_t key;
    };

    Characters::Common at(size_t place) const {
        if (place < text.size) return by.characters.common(text.data[place]);
        return {SPACE, 0};
    }

    void run() {
        for (size_t at = 0; at < text.size;) {
            const uint32_t flags = by.characters.flags(text.data[at]);
            if ((flags & KIND) != SPACE) {
                at = stretch(at);
                continue;
            }
            if (flags & ENDS) found.marks.push_back(static_cast<int32_t>(at));
            ++at;
        }
    }

    // What stands from `start` up to the next space; returns where that is.
    size_t stretch(size_t start) {
        const size_t n_tokens = found.tokens.size(), n_runs = found.runs.size(), n_marks = found.marks.size();
        bool joined = false, other_runs = false;  // whether the character before joins a run; whether a run is no word
        size_t head = start;
        for (Characters::Common next = at(head); (next.flags & KIND) != SPACE;) {
            if ((next.flags & KIND) == ODD) {
                found.tokens.resize(n_tokens), found.runs.resize(n_runs), found.marks.resize(n_marks);
                return odd(start);
            }
            const bool letters = (next.flags & KIND) == LETTER;
            uint32_t all = next.flags, any = 0, last;
            Code* const codes_room = word.codes();
            uint8_t* const narrow_room = word.narrow();
            Code bits = 0;
            size_t size = 0;  // of the word
            do {
                if (size < LONGEST) {
                    const Code folded = text.data[head + size] + next.fold;
                    bits |= folded;
                    codes_room[size] = folded;
                    narrow_room[size] = static_cast<uint8_t>(folded);
                }
                last = next.flags;
                all &= last, any |= last;
                next = at(head + ++size);
            } while (letters && (next.flags & KIND) == LETTER);
            const size_t tail = head + size;
            if (any & ENDS) mark(head, tail);
            const bool is_run = (all & WORD) && !joined && !((next.flags & KIND) != SPACE && (next.flags & WORD));
            other_runs |= (any & WORD) && !is_run;
            joined = last & WORD;
            read(head, tail, bits, (all & WORD) != 0, is_run);
            head = tail;
        }
        if (other_runs) {
            found.runs.resize(n_runs);
            runs(start, head);
        }
        return head;
    }

    void mark(size_t head, size_t tail) {
        for (size_t i = head; i < tail; ++i)
            if (by.characters.is(text.data[i], ENDS)) found.marks.push_back(static_cast<int32_t>(i));
    }

    void add(const Found& read, size_t start, size_t end, bool is_run) {
        const auto from = static_cast<int32_t>(start);
        for (const Piece* piece = read.pieces; piece < read.pieces + read.n_pieces; ++piece)
            found.tokens.push_back({piece->id, from + piece->head, from + piece->tail});
        if (is_run) found.runs.push_back({from, static_cast<int32_t>(end), read.key});
    }

    // What stands in the room of `word`, unless that is only the beginning of a long one.
    void read(size_t head, size_t tail, Code bits, bool has_term, bool is_run) {
        if (tail - head > LONGEST) {
            long_word.assign(text.data + head, text.data + tail);
            pieces.clear();
            by.model_->cut(long_word.data(), long_word.size(), pieces);
            return add({pieces.data(), pieces.size(), 0}, head, tail, is_run);
        }
        const Known::Slot* slot = look_up(tail - head, bits, has_term);
        if (slot == nullptr) return add({pieces.data(), pieces.size(), keys[0]}, head, tail, is_run);
        if (slot->entry != nullptr) return add({slot->entry->pieces(), slot->entry->n_pieces, slot->key}, head, tail, is_run);
        const auto from = static_cast<int32_t>(head), to = static_cast<int32_t>(tail);
        found.tokens.push_back({slot->id, from, to});
        if (is_run) found.runs.push_back({from, to, slot->key});
    }

    // The slot of what stands in the room of `word`; null where all are taken: see `pieces` and `keys`.
    const Known::Slot* look_up(size_t size, Code bits, bool has_term) {
        word.close(size, bits);
        if (const Known::Slot* slot = known->find(word)) return slot;
        pieces.clear();
        by.model_->cut(word.codes(), size, pieces);
        keys.assign(1, has_term ? by.analyzer_->key(word.codes(), size) : 0);
        return known->add(word, pieces, keys);
    }

    // Writes one character of a word.
    void spell(size_t at, Code c) { word.codes()[at] = c, word.narrow()[at] = static_cast<uint8_t>(c); }

    // The runs of a stretch, whatever its words are.
    void runs(size_t start, size_t end) {
        for (size_t head = start, tail; head < end; head = tail) {
            Code bits = 0;
            for (tail = head; tail < end && at(tail).flags & WORD; ++tail) {
                if (tail - head >= LONGEST) continue;
                const Code folded = text.data[tail] + at(tail).fold;
                bits |= folded;
                spell(tail - head, folded);
            }
            if (tail == head) ++tail;
            else add({nullptr, 0, tail - head > LONGEST ? 0 : key(tail - head, bits)}, head, tail, true);
        }
    }

    int64_t key(size_t size, Code bits) {
        const Known::Slot* slot = look_up(size, bits, true);
        return slot == nullptr ? keys[0] : slot->key;
    }

    size_t odd(size_t start) {
        size_t end = start;
        while ((at(end).flags & KIND) != SPACE) ++end;
        mark(start, end);
        const size_t size = end - start;
        if (size <= LONGEST) {
            Code bits = 0;  // not folded: an odd character may change its neighbours
            for (size_t i = 0; i < size; ++i) {
                bits |= text.data[start + i];
                spell(i, text.data[start + i]);
            }
            word.close(size, bits);
            if (const Known::Slot* slot = known->find(word)) {
                const Piece whole{slot->id, 0, static_cast<int32_t>(size)};
                if (const Entry* entry = slot->entry) add_odd(entry->pieces(), entry->n_pieces, entry->keys(), entry->n_keys, start, end);
                else add_odd(&whole, 1, &slot->key, 1, start, end);
                return end;
            }
        }
        const auto place = given.find(std::u32string(text.data + start, text.data + end));
        if (place == given.end()) {
            found.ask(start, end, TOKENS);
            return end;
        }
        const Odd& read = place->second;
        if (size <= LONGEST) known->add(word, read.pieces, read.keys);
        add_odd(read.pieces.data(), read.pieces.size(), read.keys.data(), read.keys.size(), start, end);
        return end;
    }

    void add_odd(const Piece* cut, size_t n_pieces, const int64_t* own, size_t n_keys, size_t start, size_t end) {
        add({cut, n_pieces, 0}, start, end, false);
        for (size_t i = 0; i < n_keys; ++i) add({nullptr, 0, own[i]}, start, end, true);
    }
};

template <class Unit>
void WordReader::read(View<Unit> text, const Odds& given, Reading& found) const {
    Call<Unit>{*this, text, given, found}.run();
}

void WordReader::meet(const std::vector<std::pair<std::vector<Code>, int32_t>>& words) const {
    const Odds none;
    Reading found;
    for (size_t i = 0; i < words.size() && i < Known::MOST / 4; ++i) {
        found.clear();
        read(View<Code>{words[i].first.data(), words[i].first.size()}, none, found);
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
