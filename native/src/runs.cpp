#include "runs.hpp"

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

    std::shared_ptr<Known> newest() const {
        std::lock_guard lock(by.renewing_);
        if (by.known_->full()) by.known_ = std::make_shared<Known>(by.most_);  // whoever reads in the old one keeps it so long
        return by.known_;
    }

    uint32_t flags(size_t at) const { return by.flags_[text.data[at]]; }

    void run() {
        for (size_t start = 0, end; start < text.size; start = end + 1) {
            uint32_t any = 0;
            bool odd = false;
            size_t pairs = 0;  // that stand together
            for (end = start; end < text.size; ++end) {
                const uint32_t one = flags(end);
                if (one & ENDS_SENTENCE) found.marks.push_back(static_cast<int32_t>(end));
                if ((one & RUN_KIND) == SPACE) break;
                pairs = one & PAIRED ? pairs + 1 : 0;
                odd |= (one & (RUN_KIND | PAIRED)) == ODD || pairs > STRETCH;
                any |= one;
            }
            if (odd) read(start, end, false);
            else if (any & (IN_RUN | PAIRED)) stretch(start, end);
        }
    }

    // The runs of a stretch in which nothing is odd.
    void stretch(size_t start, size_t end) {
        for (size_t head = start, tail; head < end; head = tail) {
            tail = head + 1;
            const uint32_t first = flags(head);
            if (first & PAIRED) {
                const bool followed = tail < end && (flags(tail) & PAIRED), alone = head == start || !(flags(head - 1) & PAIRED);
                if (followed || alone) read(head, head + (followed ? 2 : 1), true);
            } else if (first & IN_RUN) {
                while (tail < end && (flags(tail) & (IN_RUN | PAIRED)) == IN_RUN) ++tail;
                read(head, tail, true);
            }
        }
    }

    void read(size_t head, size_t tail, bool plain) {
        const size_t size = tail - head;
        if (size > LONGEST) return add(head, tail, 0);
        Code* const codes = word.codes();
        uint8_t* const narrow = word.narrow();
        Code bits = 0;
        for (size_t i = 0; i < size; ++i) {
            const Code c = text.data[head + i];
            bits |= c, codes[i] = c, narrow[i] = static_cast<uint8_t>(c);
        }
        word.close(size, bits);
        if (const Known::Slot* slot = known->find(word)) {
            if (slot->entry == nullptr) return add(head, tail, slot->key);
            for (size_t i = 0; i < slot->entry->n_keys; ++i) add(head, tail, slot->entry->keys()[i]);
            return;
        }
        if (plain && by.analyzer_ != nullptr) {
            keys.assign(1, by.analyzer_->key(word.codes(), size));
        } else {
            const auto place = given.find(std::u32string(text.data + head, text.data + tail));
            if (place == given.end()) {
                return found.ask(head, tail, TERMS);
            }
            keys = place->second.keys;
        }
        known->add(word, {{0, 0, static_cast<int32_t>(size)}}, keys);  // a token, so that short runs need no second look
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

template void RunReader::read(View<uint8_t>, const Odds&, Reading&) const;
template void RunReader::read(View<uint16_t>, const Odds&, Reading&) const;
template void RunReader::read(View<uint32_t>, const Odds&, Reading&) const;

}  // namespace keyblock
