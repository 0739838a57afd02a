#include "runs.hpp"

#include <algorithm>

#include "known.hpp"

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

RunReader::RunReader(const uint32_t* flags, const Analyzer* analyzer, size_t most)
    : flags_(flags), analyzer_(analyzer), most_(most), known_(std::make_shared<Known>(most)) {}

template <class Unit>
struct RunReader::Call {
    const RunReader& by;
    const View<Unit> text;
    const Odds& given;
    Reading& found;
    std::shared_ptr<Known> known = newest();
    Spelling word{};
    std::vector<int64_t> keys{};
    std::vector<Code> folded{};
    std::vector<size_t> places{};  // their places

    std::shared_ptr<Known> newest() const {
        std::lock_guard lock(by.renewing_);
        if (by.known_->full()) by.known_ = std::make_shared<Known>(by.most_);  // threads that read the old one keep it until they are done
        return by.known_;
    }

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
        spell(folded.data() + first, size);
        look_up(places[first], places[first + size - 1] + 1, size, true);
    }

    void read(size_t head, size_t tail, bool plain) {
        if (tail - head > LONGEST) return add(head, tail, 0);
        spell(text.data + head, tail - head);
        look_up(head, tail, tail - head, plain);
    }

    template <class Some>
    void spell(const Some* from, size_t size) {
        Code* const codes = word.codes();
        uint8_t* const narrow = word.narrow();
        Code bits = 0;
        for (size_t i = 0; i < size; ++i) {
            const Code c = from[i];
            bits |= c, codes[i] = c, narrow[i] = static_cast<uint8_t>(c);
        }
        word.close(size, bits);
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

template <class Unit>
void RunReader::read(View<Unit> text, const Odds& given, Reading& found) const {
    Call<Unit>{*this, text, given, found}.run();
}

template <class Unit>
bool RunReader::keys_between(View<Unit> text, size_t start, size_t end, const Odds& given, std::vector<int64_t>& found) const {
    Reading part;
    read(View<Unit>{text.data + start, end - start}, given, part);
    const auto is_long = [](const Run& run) { return run.tail - run.head > static_cast<int32_t>(LONGEST); };
    if (!part.missing.empty() || std::any_of(part.runs.begin(), part.runs.end(), is_long)) return false;
    for (const Run& run : part.runs)
        if (run.key != 0) found.push_back(run.key);
    return true;
}

template void RunReader::read(View<uint8_t>, const Odds&, Reading&) const;
template void RunReader::read(View<uint16_t>, const Odds&, Reading&) const;
template void RunReader::read(View<uint32_t>, const Odds&, Reading&) const;
template bool RunReader::keys_between(View<uint8_t>, size_t, size_t, const Odds&, std::vector<int64_t>&) const;
template bool RunReader::keys_between(View<uint16_t>, size_t, size_t, const Odds&, std::vector<int64_t>&) const;
template bool RunReader::keys_between(View<uint32_t>, size_t, size_t, const Odds&, std::vector<int64_t>&) const;

}  // namespace keyblock
