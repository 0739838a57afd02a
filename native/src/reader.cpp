#include "reader.hpp"

#include <algorithm>

#include "known.hpp"

namespace keyblock {
namespace {

constexpr size_t AT_ONCE = 48;  // words whose slots are asked of memory before the first is read
constexpr size_t AT_A_LOOK = 63;  // characters of a stretch that is read by its bits: one less than a number has

}  // namespace

WordReader::WordReader(const Characters& characters, std::unique_ptr<Model> model, std::unique_ptr<Analyzer> analyzer)
    : characters(characters), ascii_(characters), model_(std::move(model)), analyzer_(std::move(analyzer)), known_(std::make_shared<Known>()) {}

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
    Outline outline{};
    Spelling word{};
    std::vector<Code> long_word{};  // one that is too long to be remembered
    std::vector<Piece> pieces{};
    std::vector<int64_t> keys{};

    struct Found {
        const Piece* pieces;
        size_t n_pieces;
        int64_t key;
    };

    enum class As : uint8_t { WORD, WORD_AND_RUN, RUN, ODD };
    // What is read later: its place in memory is known, and asked for.
    struct Later {
        uint64_t hash = 0, mark = 0;  // of a word that is short; else it is spelled again
        uint32_t shape = 0;
        int32_t head, tail;
        As as;
        bool has_term, ascii;
        const Known::Slot* slot = nullptr;
        bool is_short() const { return (shape & 1) == 0 && tail - head <= 8; }
    };
    std::vector<Later> later{};

    Characters::Common at(size_t place) const {
        if (place < text.size) return by.characters.common(text.data[place]);
        return {SPACE, 0};
    }

    void run() {
        outline.draw(by.ascii_, text);
        for (size_t at = 0, tail = 0;;) {
            const size_t head = outline.other_than_space_from(at);
            if (outline.any(&Bits::ends, at, head)) mark(at, head);
            if (head == text.size) break;
            if (tail <= head) tail = outline.space_from(head);  // else the one that was found before is the next, still
            if (tail - head <= AT_A_LOOK && !outline.any(&Bits::other, head, tail)) words(head, at = tail);
            else if (by.characters.kind(text.data[head]) != SPACE) at = stretch(head);
            else mark(head, at = head + 1);  // a space that is no ASCII
            if (later.size() >= AT_ONCE) read_all();
        }
        read_all();
    }

    // What stands between two spaces, all of it ASCII: `stretch` by its bits.
    void words(size_t start, size_t end) {
        const size_t n_later = later.size(), size = end - start;
        const uint64_t within = ~(~uint64_t{0} << size);
        const uint64_t letters = outline.bits(&Bits::letter, start) & within, in_runs = outline.bits(&Bits::word, start) & within;
        if (outline.any(&Bits::ends, start, end)) mark(start, end);
        bool other_runs = false;
        for (size_t head = 0, tail; head < size; head = tail) {
            tail = head + ((letters >> head & 1) != 0 ? zeros(~(letters >> head)) : 1);
            const uint64_t own = ~(~uint64_t{0} << (tail - head)) << head;
            const bool has_term = (in_runs & own) == own;
            const bool is_run = has_term && (in_runs & own << 1 & ~own) == 0;  // the next one's character does not go on with it
            other_runs |= (in_runs & own) != 0 && !is_run;
            put_off(start + head, start + tail, has_term, is_run ? As::WORD_AND_RUN : As::WORD);
        }
        if (other_runs) only_words(n_later, start, end);
    }

    // Of the words from number `first` on none is a run: the runs of their stretch are read apart.
    void only_words(size_t first, size_t start, size_t end) {
        for (size_t i = first; i < later.size(); ++i) later[i].as = As::WORD;
        runs(start, end);
    }

    // What stands from `start` up to the next space; returns where that is.
    size_t stretch(size_t start) {
        const size_t n_later = later.size(), n_marks = found.marks.size();
        bool joined = false, other_runs = false;  // whether the character before joins a run; whether a run is no word
        size_t head = start;
        for (Characters::Common next = at(head); (next.flags & KIND) != SPACE;) {
            if ((next.flags & KIND) == ODD) {
                later.resize(n_later), found.marks.resize(n_marks);
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
            put_off(head, tail, bits, (all & WORD) != 0, is_run ? As::WORD_AND_RUN : As::WORD);
            head = tail;
        }
        if (other_runs) only_words(n_later, start, head);
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

    // What stands in the room of `word`, unless that is only the beginning of a long one, is read with others.
    void put_off(size_t head, size_t tail, Code bits, bool has_term, As as) {
        Later& one = put_off(head, tail, has_term, as, false);
        if (tail - head > LONGEST) return;
        word.close(tail - head, bits);
        expect(one);
    }

    // The same of ASCII, where it stands folded.
    void put_off(size_t head, size_t tail, bool has_term, As as) {
        Later& one = put_off(head, tail, has_term, as, true);
        word.take(outline.folded(head), tail - head);
        expect(one);
    }

    Later& put_off(size_t head, size_t tail, bool has_term, As as, bool ascii) {
        Later& one = later.emplace_back();
        one.head = static_cast<int32_t>(head), one.tail = static_cast<int32_t>(tail);
        one.as = as, one.has_term = has_term, one.ascii = ascii;
        return one;
    }

    void expect(Later& one) {
        one.hash = word.hash(), one.mark = word.mark(), one.shape = word.shape();
        known->expect(one.hash);
    }

    void read_all() {
        for (Later& one : later)
            if (one.is_short() && one.as != As::ODD) one.slot = known->find(one.hash, one.shape, one.mark);
        for (const Later& one : later) {
            if (one.as == As::ODD) odd(one);
            else read(one);
        }
        later.clear();
    }

    void read(const Later& one) {
        const auto head = static_cast<size_t>(one.head), tail = static_cast<size_t>(one.tail);
        const bool is_word = one.as != As::RUN, is_run = one.as != As::WORD;
        if (tail - head > LONGEST) return read_long(head, tail, is_word, is_run);
        const Known::Slot* slot = one.slot == nullptr ? look_up(one) : one.slot;
        if (slot == nullptr) return add({pieces.data(), is_word ? pieces.size() : 0, keys[0]}, head, tail, is_run);
        if (slot->entry != nullptr) return add({slot->entry->pieces(), is_word ? slot->entry->n_pieces : 0, slot->key}, head, tail, is_run);
        if (is_word) found.tokens.push_back({slot->id, one.head, one.tail});
        if (is_run) found.runs.push_back({one.head, one.tail, slot->key});
    }

    void read_long(size_t head, size_t tail, bool is_word, bool is_run) {
        pieces.clear();
        if (is_word) {
            long_word.assign(text.data + head, text.data + tail);
            by.model_->cut(long_word.data(), long_word.size(), pieces);
        }
        add({pieces.data(), pieces.size(), 0}, head, tail, is_run);
    }

    // Its slot; null where all are taken: see `pieces` and `keys`.
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

    // Makes `word` what stands there. Odd characters are not folded: one may change its neighbours.
    void spell(size_t head, size_t tail, bool folded) { word.close(tail - head, write(head, tail, folded)); }

    // Writes what stands there into the room of `word`; returns all characters, or-ed.
    Code write(size_t head, size_t tail, bool folded) {
        Code bits = 0;
        for (size_t at = head; at < tail; ++at) {
            const Code c = text.data[at] + (folded ? by.characters.common(text.data[at]).fold : 0);
            bits |= c;
            word.codes()[at - head] = c, word.narrow()[at - head] = static_cast<uint8_t>(c);
        }
        return bits;
    }

    // The runs of a stretch, whatever its words are.
    void runs(size_t start, size_t end) {
        for (size_t head = start, tail; head < end; head = tail) {
            for (tail = head; tail < end && at(tail).flags & WORD; ++tail) continue;
            if (tail == head) ++tail;
            else put_off(head, tail, tail - head <= LONGEST ? write(head, tail, true) : 0, true, As::RUN);
        }
    }

    // A stretch that holds an odd character; returns where it ends.
    size_t odd(size_t start) {
        size_t end = start;
        while ((at(end).flags & KIND) != SPACE) ++end;
        mark(start, end);
        put_off(start, end, end - start <= LONGEST ? write(start, end, false) : 0, false, As::ODD);
        return end;
    }

    void odd(const Later& one) {
        const auto start = static_cast<size_t>(one.head), end = static_cast<size_t>(one.tail), size = end - start;
        if (size <= LONGEST) {
            spell(start, end, false);
            if (const Known::Slot* slot = known->find(word)) {
                const Piece whole{slot->id, 0, static_cast<int32_t>(size)};
                if (const Entry* entry = slot->entry) add_odd(entry->pieces(), entry->n_pieces, entry->keys(), entry->n_keys, start, end);
                else add_odd(&whole, 1, &slot->key, 1, start, end);
                return;
            }
        }
        const auto place = given.find(std::u32string(text.data + start, text.data + end));
        if (place == given.end()) return found.ask(start, end, TOKENS);
        const Odd& read = place->second;
        if (size <= LONGEST) known->add(word, read.pieces, read.keys);
        add_odd(read.pieces.data(), read.pieces.size(), read.keys.data(), read.keys.size(), start, end);
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
bool WordReader::keys_between(View<Unit> text, size_t start, size_t end, std::vector<int64_t>& found) const {
    for (size_t at = start; at < end; ++at)
        if (characters.kind(text.data[at]) == ODD) return false;
    std::vector<Code> run;
    const auto is_word = [&](size_t at) { return characters.is(text.data[at], WORD); };
    for (size_t head = start, tail; head < end; head = tail) {
        tail = head + 1;
        if (!is_word(head)) continue;
        while (tail < end && is_word(tail)) ++tail;
        run.assign(text.data + head, text.data + tail);
        if (const int64_t key = analyzer_->key(run.data(), run.size())) found.push_back(key);
    }
    return true;
}

template void WordReader::read(View<uint8_t>, const Odds&, Reading&) const;
template void WordReader::read(View<uint16_t>, const Odds&, Reading&) const;
template void WordReader::read(View<uint32_t>, const Odds&, Reading&) const;
template bool WordReader::keys_between(View<uint8_t>, size_t, size_t, std::vector<int64_t>&) const;
template bool WordReader::keys_between(View<uint16_t>, size_t, size_t, std::vector<int64_t>&) const;
template bool WordReader::keys_between(View<uint32_t>, size_t, size_t, std::vector<int64_t>&) const;

}  // namespace keyblock
