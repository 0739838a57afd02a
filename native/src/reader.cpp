#include "reader.hpp"

#include <algorithm>

namespace keyblock {
namespace {

constexpr size_t AT_ONCE = 48;  // words whose slots are prefetched before the first is read
constexpr size_t AT_A_LOOK = 63;  // the most characters of a stretch that is read by its bits: one less than a number has bits

}  // namespace

template <class Unit>
struct WordReader::Call {
    Call(const WordReader& by, View<Unit> text, const Odds& given, Reading& found) : by(by), text(text), given(given), found(found) {}

    const WordReader& by;
    const View<Unit> text;
    const Odds& given;
    Reading& found;
    std::shared_ptr<Known> known = by.memory_.known();
    Outline outline{};
    Spelling word{};
    std::vector<Code> long_word{};  // a word that is too long to be stored
    std::vector<Piece> pieces{};
    std::vector<int64_t> keys{};

    enum class As : uint8_t { WORD, WORD_AND_RUN, RUN, ODD };
    // A word that is looked up later: its slot is prefetched.
    struct Later {
        uint64_t hash, mark;  // of a short word; a longer one is spelled again
        const Known::Slot* slot;
        uint32_t shape;
        int32_t head, tail;
        As as;
        bool has_term, ascii;
        bool is_short() const { return (shape & 1) == 0 && tail - head <= 8; }
    };
    std::vector<Later> later{};

    Characters::Common at(size_t place) const {
        if (place < text.size) return by.characters.common(text.data[place]);
        return {SPACE, 0};
    }

    void run() {
        outline.draw(by.ascii_, text);
        mark_ends();
        for (size_t at = 0; (at = outline.other_than_space_from(at)) < text.size;) {
            const Bits bits = outline.bits(at);
            const size_t size = bits.space == 0 ? Bits::SIZE : zeros(bits.space);
            if (size <= AT_A_LOOK && (bits.other & first(size)) == 0) words(at, size, bits), at += size;
            else if (by.characters.kind(text.data[at]) != SPACE) at = stretch(at);
            else ++at;  // a space that is not ASCII
            if (later.size() >= AT_ONCE) read_all();
        }
        read_all();
    }

    static uint64_t first(size_t size) { return ~(~uint64_t{0} << size); }  // the lowest `size` bits, which are not all

    // Finds the characters that may end a sentence.
    void mark_ends() {
        for (size_t start = 0; start < text.size; start += Bits::SIZE) {
            const Bits& bits = outline.drawn(start);
            for (uint64_t some = bits.ends | bits.other; some != 0; some &= some - 1) {
                const size_t at = start + zeros(some);
                if (by.characters.is(text.data[at], ENDS)) found.marks.push_back(static_cast<int32_t>(at));
            }
        }
    }

    // Reads the text between two spaces, all of it ASCII, by the bits of `stretch`.
    void words(size_t start, size_t size, const Bits& bits) {
        const size_t n_later = later.size();
        const uint64_t letters = bits.letter & first(size), in_runs = bits.word & first(size);
        bool other_runs = false;
        for (size_t head = 0, tail; head < size; head = tail) {
            tail = head + ((letters >> head & 1) != 0 ? zeros(~(letters >> head)) : 1);
            const uint64_t own = first(tail - head) << head;
            const bool has_term = (in_runs & own) == own;
            const bool is_run = has_term && (in_runs & own << 1 & ~own) == 0;  // the next character does not continue it
            other_runs |= (in_runs & own) != 0 && !is_run;
            put_off(start + head, start + tail, has_term, is_run ? As::WORD_AND_RUN : As::WORD);
        }
        if (other_runs) only_words(n_later, start, start + size);
    }

    // No word from number `first` on is a run: the runs of their stretch are read separately.
    void only_words(size_t first, size_t start, size_t end) {
        for (size_t i = first; i < later.size(); ++i) later[i].as = As::WORD;
        runs(start, end);
    }

    // Reads the text from `start` up to the next space; returns the place of that space.
    size_t stretch(size_t start) {
        const size_t n_later = later.size();
        bool joined = false, other_runs = false;  // whether the previous character joins a run; whether a run is no word
        size_t head = start;
        for (Characters::Common next = at(head); (next.flags & KIND) != SPACE;) {
            if ((next.flags & KIND) == ODD) {
                later.resize(n_later);
                return put_off_odd(start);
            }
            const bool letters = (next.flags & KIND) == LETTER;
            uint32_t all = next.flags, any = 0, last;
            Code bits = 0;
            size_t size = 0;  // of the word
            do {
                if (size < LONGEST) {
                    const Code folded = text.data[head + size] + next.fold;
                    bits |= folded;
                    word.put(size, folded);
                }
                last = next.flags;
                all &= last, any |= last;
                next = at(head + ++size);
            } while (letters && (next.flags & KIND) == LETTER);
            const size_t tail = head + size;
            const bool is_run = (all & WORD) && !joined && !((next.flags & KIND) != SPACE && (next.flags & WORD));
            other_runs |= (any & WORD) && !is_run;
            joined = last & WORD;
            put_off(head, tail, bits, (all & WORD) != 0, is_run ? As::WORD_AND_RUN : As::WORD);
            head = tail;
        }
        if (other_runs) only_words(n_later, start, head);
        return head;
    }

    // Queues the word in the memory of `word` to be looked up with others, unless it is only the beginning of a long word.
    void put_off(size_t head, size_t tail, Code bits, bool has_term, As as) {
        Later& one = put_off(head, tail, has_term, as, false);
        if (tail - head > LONGEST) return;
        word.close(tail - head, bits);
        expect(one, word.hash(), word.mark(), word.shape());
    }

    // The same for ASCII, in its folded form.
    void put_off(size_t head, size_t tail, bool has_term, As as) {
        Later& one = put_off(head, tail, has_term, as, true);
        const Spelling::Short spelt(outline.folded(head), tail - head);
        if (one.is_short()) return expect(one, spelt.hash, spelt.mark, spelt.shape);
        word.take(outline.folded(head), tail - head);
        expect(one, word.hash(), word.mark(), word.shape());
    }

    Later& put_off(size_t head, size_t tail, bool has_term, As as, bool ascii) {
        later.push_back({0, 0, nullptr, 0, static_cast<int32_t>(head), static_cast<int32_t>(tail), as, has_term, ascii});
        return later.back();
    }

    void expect(Later& one, uint64_t hash, uint64_t mark, uint32_t shape) {
        one.hash = hash, one.mark = mark, one.shape = shape;
        known->expect(hash);
    }

    void read_all() {
        for (Later& one : later)
            if (one.is_short() && one.as != As::ODD) one.slot = known->find(one.hash, one.shape, one.mark);
        for (const Later& one : later) {
            if (one.as == As::ODD) odd(static_cast<size_t>(one.head), static_cast<size_t>(one.tail));
            else read(one);
        }
        later.clear();
    }

    void read(const Later& one) {
        if (one.tail - one.head > static_cast<int32_t>(LONGEST)) return read_long(one);
        const Known::Slot* slot = one.slot == nullptr ? look_up(one) : one.slot;
        const Entry* entry = slot == nullptr ? nullptr : slot->entry;
        if (one.as != As::RUN) {
            if (slot == nullptr) add_tokens(pieces.data(), pieces.size(), one.head);
            else if (entry != nullptr) add_tokens(entry->pieces(), entry->n_pieces, one.head);
            else found.tokens.push_back({slot->id, one.head, one.tail});
        }
        if (one.as != As::WORD) found.runs.push_back({one.head, one.tail, slot == nullptr ? keys[0] : slot->key});
    }

    void add_tokens(const Piece* some, size_t n, int32_t start) {
        for (const Piece* piece = some; piece < some + n; ++piece)
            found.tokens.push_back({piece->id, start + piece->head, start + piece->tail});
    }

    void read_long(const Later& one) {
        if (one.as != As::RUN) {
            pieces.clear();
            long_word.assign(text.data + one.head, text.data + one.tail);
            by.model_->cut(long_word.data(), long_word.size(), pieces);
            add_tokens(pieces.data(), pieces.size(), one.head);
        }
        if (one.as != As::WORD) found.runs.push_back({one.head, one.tail, 0});
    }

    // The word's slot; null if all are taken: see `pieces` and `keys`.
    const Known::Slot* look_up(const Later& one) {
        const auto head = static_cast<size_t>(one.head), tail = static_cast<size_t>(one.tail);
        if (one.ascii) {
            word.take(outline.folded(head), tail - head);
            if (const Known::Slot* slot = known->find(word)) return slot;
        }
        spell(head, tail, true);
        if (const Known::Slot* slot = known->find(word)) return slot;
        pieces.clear();
        by.model_->cut(word.codes(), tail - head, pieces);
        keys.assign(1, one.has_term ? by.analyzer_->key(word.codes(), tail - head) : 0);
        return known->add(word, pieces, keys);
    }

    // Sets `word` to the text there. Odd characters are not folded, since they may change their neighbours.
    void spell(size_t head, size_t tail, bool folded) { word.close(tail - head, write(head, tail, folded)); }

    // Writes the text there into the memory of `word`; returns all characters, or-ed.
    Code write(size_t head, size_t tail, bool folded) {
        Code bits = 0;
        for (size_t at = head; at < tail; ++at) {
            const Code c = text.data[at] + (folded ? by.characters.common(text.data[at]).fold : 0);
            bits |= c, word.put(at - head, c);
        }
        return bits;
    }

    // Reads the runs of a stretch, independently of its words.
    void runs(size_t start, size_t end) {
        for (size_t head = start, tail; head < end; head = tail) {
            for (tail = head; tail < end && at(tail).flags & WORD; ++tail) continue;
            if (tail == head) ++tail;
            else put_off(head, tail, tail - head <= LONGEST ? write(head, tail, true) : 0, true, As::RUN);
        }
    }

    // Reads a stretch with an odd character; returns where it ends.
    size_t put_off_odd(size_t start) {
        size_t end = start;
        while ((at(end).flags & KIND) != SPACE) ++end;
        put_off(start, end, end - start <= LONGEST ? write(start, end, false) : 0, false, As::ODD);
        return end;
    }

    void odd(size_t start, size_t end) {
        const size_t size = end - start;
        if (size <= LONGEST) {
            spell(start, end, false);
            if (const Known::Slot* slot = known->find(word)) {
                const Piece whole{slot->id, 0, static_cast<int32_t>(size)};
                if (const Entry* entry = slot->entry) add_odd(entry->pieces(), entry->n_pieces, entry->keys(), entry->n_keys, start, end);
                else add_odd(&whole, 1, &slot->key, 1, start, end);
                return;
            }
        }
        const auto place = given.find(name_of(TOKENS, text.data + start, text.data + end));
        if (place == given.end()) return found.ask(start, end, TOKENS);
        const Odd& read = place->second;
        if (size <= LONGEST) known->add(word, read.pieces, read.keys);
        add_odd(read.pieces.data(), read.pieces.size(), read.keys.data(), read.keys.size(), start, end);
    }

    void add_odd(const Piece* cut, size_t n_pieces, const int64_t* own, size_t n_keys, size_t start, size_t end) {
        add_tokens(cut, n_pieces, static_cast<int32_t>(start));
        for (size_t i = 0; i < n_keys; ++i) found.runs.push_back({static_cast<int32_t>(start), static_cast<int32_t>(end), own[i]});
    }
};

void WordReader::read(const Text& text, const Odds& given, Reading& found) const {
    text.visit([&](auto view) { Call(*this, view, given, found).run(); });
}

void WordReader::meet(const std::vector<std::pair<std::vector<Code>, int32_t>>& words) const {
    const Odds none;
    Reading found;
    for (size_t i = 0; i < words.size() && i < Known::MOST / 4; ++i) {
        found.clear();
        read(View<Code>{words[i].first.data(), words[i].first.size()}, none, found);
    }
}

}  // namespace keyblock
