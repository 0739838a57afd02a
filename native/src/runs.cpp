#include "runs.hpp"

#include <algorithm>

namespace keyblock {
namespace {

constexpr size_t STRETCH = 1024;  // keyblock.text.universal.STRETCH

}  // namespace

int64_t Universal::key(const Code* run, size_t size) const {
    Code term[LONGEST];
    size_t n = 0;
    for (size_t i = 0; i < size; ++i)
        folded_.spell(run[i], [&](Code c) {
            if (n < LONGEST) term[n++] = c;
        });
    return n == 0 ? 0 : term_key(term, n);
}

template <class Unit>
struct RunReader::Call {
    Call(const RunReader& by, View<Unit> text, const Odds& given, Reading& found) : by(by), text(text), given(given), found(found) {}

    const RunReader& by;
    const View<Unit> text;
    const Odds& given;
    Reading& found;
    std::shared_ptr<Known> known = by.memory_.known();
    Spelling word{};
    std::vector<int64_t> keys{};
    std::vector<Code> folded{};
    std::vector<size_t> places{};  // their places

    uint32_t flags(size_t at) const { return by.flags_[text.data[at]]; }

    void run() {
        for (size_t start = 0, end; start < text.size; start = end + 1) {
            uint32_t any = 0;
            bool odd = false;
            uint32_t last = 0;  // combining class
            size_t pairs = 0;  // adjacent pairs
            for (end = start; end < text.size; ++end) {
                const uint32_t one = flags(end);
                if (one & ENDS_SENTENCE) found.marks.push_back(static_cast<int32_t>(end));
                if ((one & RUN_KIND) == SPACE) break;
                pairs = one & PAIRED ? pairs + 1 : 0;
                odd |= (one & (RUN_KIND | PAIRED)) == ODD || pairs > STRETCH || (first_class(one) != 0 && last > first_class(one));
                if (first_class(one) == 0 || !(one & VANISHES)) last = last_class(one);
                any |= one;
            }
            if (odd) read(start, end, false);
            else if (any & (IN_RUN | PAIRED)) stretch(start, end);
        }
    }

    // Reads the runs of a stretch without odd characters.
    void stretch(size_t start, size_t end) {
        for (size_t head = start, tail; head < end; head = tail) {
            const uint32_t sort = flags(head) & (IN_RUN | PAIRED);
            tail = head + 1;
            if (sort == 0) continue;
            const auto alike = [&](size_t at) { return sort & PAIRED ? (flags(at) & PAIRED) != 0 : (flags(at) & (IN_RUN | PAIRED)) == IN_RUN; };
            while (tail < end && alike(tail)) ++tail;
            if (sort & PAIRED) read_pairs(head, tail);
            else read(head, tail, true);
        }
    }

    void read_pairs(size_t start, size_t end) {
        folded.clear(), places.clear();
        for (size_t at = start; at < end; ++at) {
            if (by.analyzer_ == nullptr) folded.push_back(text.data[at]);
            else by.analyzer_->fold(text.data[at], folded);
            places.resize(folded.size(), at);
        }
        const size_t n = folded.size();
        if (n == 1) pair(0, 1);
        for (size_t i = 0; i + 1 < n; ++i) pair(i, 2);
    }

    void pair(size_t first, size_t size) {
        word.set(folded.data() + first, size);
        look_up(places[first], places[first + size - 1] + 1, size, true);
    }

    void read(size_t head, size_t tail, bool plain) {
        if (tail - head > LONGEST) return add(head, tail, 0);
        word.set(text.data + head, tail - head);
        look_up(head, tail, tail - head, plain);
    }

    // The keys of `word`, which is the text there.
    void look_up(size_t head, size_t tail, size_t size, bool plain) {
        if (const Known::Slot* slot = known->find(word)) {
            if (slot->entry == nullptr) return add(head, tail, slot->key);
            for (size_t i = 0; i < slot->entry->n_keys; ++i) add(head, tail, slot->entry->keys()[i]);
            return;
        }
        if (plain && by.analyzer_ != nullptr) {
            keys.assign(1, by.analyzer_->key(word.codes(), size));
        } else {
            const auto place = given.find(name_of(TERMS, text.data + head, text.data + tail));
            if (place == given.end()) return found.ask(head, tail, TERMS);
            keys = place->second.keys;
        }
        known->add(word, {{0, 0, static_cast<int32_t>(size)}}, keys);  // a token, so that short runs need no second look-up
        for (int64_t key : keys) add(head, tail, key);
    }

    void add(size_t head, size_t tail, int64_t key) {
        found.runs.push_back({static_cast<int32_t>(head), static_cast<int32_t>(tail), key});
    }
};

void RunReader::read(const Text& text, const Odds& given, Reading& found) const {
    text.visit([&](auto view) { Call(*this, view, given, found).run(); });
}

}  // namespace keyblock
