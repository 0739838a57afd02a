#include "outline.hpp"

#include <algorithm>

#include "processors.hpp"

#if defined(WITH_AVX2)
#include <immintrin.h>
#endif

namespace keyblock {
namespace {

constexpr size_t READ_AHEAD = 8;  // bytes after the last that reading a word of eight may touch

// The plain way, for up to 64 characters.
template <class Unit>
void draw_plainly(const Ascii& ascii, const Unit* text, size_t n, Bits& bits, uint8_t* folded) {
    uint64_t found[Ascii::SETS] = {}, wide = 0;
    for (size_t i = 0; i < n; ++i) {
        if (text[i] >= Ascii::SIZE) {
            wide |= uint64_t{1} << i;
            continue;
        }
        for (size_t set = 0; set < Ascii::SETS; ++set) found[set] |= static_cast<uint64_t>(ascii.in[text[i]] >> set & 1) << i;
        folded[i] = ascii.folded[text[i]];
    }
    const uint64_t behind = n < Bits::SIZE ? ~uint64_t{0} << n : 0;
    bits = {found[Ascii::SPACES] | behind, found[Ascii::LETTERS], found[Ascii::WORDS], found[Ascii::ENDINGS], found[Ascii::ODDS] | wide};
}

template <class Unit>
void draw_64(const Ascii& ascii, const Unit* text, Bits& bits, uint8_t* folded) {
    draw_plainly(ascii, text, Bits::SIZE, bits, folded);
}

#if defined(WITH_AVX2)
FOR_AVX2 inline __m256i read(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
FOR_AVX2 inline __m256i twice(const uint8_t* half) { return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(half))); }

// 32 characters, a byte each: 128 or more for characters that are not ASCII.
FOR_AVX2 inline __m256i narrow(const uint8_t* text) { return read(text); }
FOR_AVX2 inline __m256i narrow(const uint16_t* text) {
    const __m256i most = _mm256_set1_epi16(255);  // packing treats larger values as negative
    const __m256i mixed = _mm256_packus_epi16(_mm256_min_epu16(read(text), most), _mm256_min_epu16(read(text + 16), most));
    return _mm256_permute4x64_epi64(mixed, 0b11011000);  // packing works on halves
}

// For 32 characters, all bits of those that are not in a set. `upper`: the bit of the upper half; none for characters that are not ASCII.
FOR_AVX2 inline __m256i outside(const uint8_t* set, __m256i lower, __m256i upper) {
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(twice(set), lower), upper), _mm256_setzero_si256());
}
FOR_AVX2 inline uint64_t bits_of(__m256i bytes) { return static_cast<uint32_t>(_mm256_movemask_epi8(bytes)); }

template <class Unit>
FOR_AVX2 inline Bits draw_32(const Ascii& ascii, const Unit* text, uint8_t* folded) {
    alignas(16) static constexpr uint8_t BIT_OF[Ascii::HALF] = {1, 2, 4, 8, 16, 32, 64, 128};
    const __m256i characters = narrow(text), low = _mm256_set1_epi8(15);
    const __m256i lower = _mm256_and_si256(characters, low);
    const __m256i upper = _mm256_shuffle_epi8(twice(BIT_OF), _mm256_and_si256(_mm256_srli_epi16(characters, 4), low));
    uint64_t found[Ascii::SETS];
    for (size_t set = 0; set < Ascii::SETS; ++set) found[set] = bits_of(outside(ascii.sets[set], lower, upper)) ^ 0xFFFFFFFF;
    const __m256i step = _mm256_andnot_si256(outside(ascii.capitals, lower, upper), _mm256_set1_epi8(32));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(folded), _mm256_add_epi8(characters, step));
    return {found[Ascii::SPACES], found[Ascii::LETTERS], found[Ascii::WORDS], found[Ascii::ENDINGS], found[Ascii::ODDS] | bits_of(characters)};
}

template <class Unit>
FOR_AVX2 void draw_halves(const Ascii& ascii, const Unit* text, Bits& bits, uint8_t* folded) {
    const Bits first = draw_32(ascii, text, folded), last = draw_32(ascii, text + 32, folded + 32);
    bits = {first.space | last.space << 32, first.letter | last.letter << 32, first.word | last.word << 32, first.ends | last.ends << 32,
            first.other | last.other << 32};
}

// Texts of four bytes a character are rare.
void draw_64(const Ascii& ascii, const uint8_t* text, Bits& bits, uint8_t* folded) { draw_halves(ascii, text, bits, folded); }
void draw_64(const Ascii& ascii, const uint16_t* text, Bits& bits, uint8_t* folded) { draw_halves(ascii, text, bits, folded); }
#endif

}  // namespace

Ascii::Ascii(const Characters& characters) {
    for (Code c = 0; c < SIZE; ++c) {
        const Characters::Common one = characters.common(c);
        const Code fold = c + one.fold;
        const uint32_t kind = one.flags & KIND;
        // characters that would fold out of range are read one by one
        const bool odd = kind == ODD || fold >= SIZE || (one.fold != 0 && one.fold != 32);
        const bool is_in[SETS] = {kind == SPACE && !odd, kind == LETTER, (one.flags & WORD) != 0, (one.flags & ENDS) != 0, odd};
        const auto bit = static_cast<uint8_t>(1 << c / HALF);
        for (size_t set = 0; set < SETS; ++set) {
            if (!is_in[set]) continue;
            sets[set][c % HALF] |= bit;
            in[c] = static_cast<uint8_t>(in[c] | 1 << set);
        }
        if (!odd && one.fold == 32) capitals[c % HALF] |= bit;
        folded[c] = static_cast<uint8_t>(odd ? c : fold);
    }
}

template <class Unit>
void Outline::draw(const Ascii& ascii, View<Unit> text) {
    size_ = text.size;
    bits_.resize(size_ / Bits::SIZE + 2);
    folded_.resize(size_ / Bits::SIZE * Bits::SIZE + Bits::SIZE + READ_AHEAD);
    size_t at = 0;
    for (const bool fast = has_avx2(); at + Bits::SIZE <= size_; at += Bits::SIZE) {
        if (fast) draw_64(ascii, text.data + at, bits_[at / Bits::SIZE], folded_.data() + at);
        else draw_plainly(ascii, text.data + at, Bits::SIZE, bits_[at / Bits::SIZE], folded_.data() + at);
    }
    draw_plainly(ascii, text.data + at, size_ - at, bits_[at / Bits::SIZE], folded_.data() + at);
    bits_[at / Bits::SIZE + 1] = {~uint64_t{0}, 0, 0, 0, 0};
}

template void Outline::draw(const Ascii&, View<uint8_t>);
template void Outline::draw(const Ascii&, View<uint16_t>);
template void Outline::draw(const Ascii&, View<uint32_t>);

}  // namespace keyblock
