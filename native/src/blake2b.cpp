#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "processors.hpp"
#include "terms.hpp"

namespace keyblock {
namespace {

constexpr uint64_t START[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};
constexpr uint8_t ORDER[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};
constexpr size_t BLOCK = 128, WORDS = 16;
constexpr size_t FEW = 2;  // 64-bit words that suffice for most terms

uint64_t turned(uint64_t x, int by) { return x >> by | x << (64 - by); }

INLINED void mix(uint64_t* v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
}

// A word of the block. Only the first SOME are not 0: adding the rest is left out.
template <size_t SOME, size_t i>
uint64_t word(const uint64_t* m) {
    if constexpr (i < SOME) return m[i];
    return 0;
}

template <size_t SOME, size_t ROUND>
INLINED void round(uint64_t* v, const uint64_t* m) {
    constexpr auto& s = ORDER[ROUND];
    mix(v, 0, 4, 8, 12, word<SOME, s[0]>(m), word<SOME, s[1]>(m));
    mix(v, 1, 5, 9, 13, word<SOME, s[2]>(m), word<SOME, s[3]>(m));
    mix(v, 2, 6, 10, 14, word<SOME, s[4]>(m), word<SOME, s[5]>(m));
    mix(v, 3, 7, 11, 15, word<SOME, s[6]>(m), word<SOME, s[7]>(m));
    mix(v, 0, 5, 10, 15, word<SOME, s[8]>(m), word<SOME, s[9]>(m));
    mix(v, 1, 6, 11, 12, word<SOME, s[10]>(m), word<SOME, s[11]>(m));
    mix(v, 2, 7, 8, 13, word<SOME, s[12]>(m), word<SOME, s[13]>(m));
    mix(v, 3, 4, 9, 14, word<SOME, s[14]>(m), word<SOME, s[15]>(m));
}

template <size_t SOME, size_t... ROUNDS>
void rounds(uint64_t* v, const uint64_t* m, std::index_sequence<ROUNDS...>) {
    (round<SOME, ROUNDS>(v, m), ...);
}

template <size_t SOME>
void compress(uint64_t* state, const uint8_t* block, uint64_t count, bool last) {
    uint64_t m[SOME], v[16];
    for (size_t i = 0; i < SOME; ++i) {  // little-endian on any machine
        m[i] = 0;
        for (size_t byte = 8; byte-- > 0;) m[i] = m[i] << 8 | block[8 * i + byte];
    }
    for (int i = 0; i < 8; ++i) v[i] = state[i], v[i + 8] = START[i];
    v[12] ^= count;
    if (last) v[14] = ~v[14];
    rounds<SOME>(v, m, std::make_index_sequence<std::size(ORDER)>());
    for (int i = 0; i < 8; ++i) state[i] ^= v[i] ^ v[i + 8];
}

}  // namespace

uint64_t blake2b_8(const uint8_t* data, size_t size) {
    uint64_t state[8];
    std::copy(START, START + 8, state);
    state[0] ^= 0x01010000 ^ 8;  // one tree, no key, 8 bytes
    uint64_t count = 0;
    for (; size > BLOCK; data += BLOCK, size -= BLOCK) compress<WORDS>(state, data, count += BLOCK, false);
    uint8_t block[BLOCK] = {};
    if (size > 0) std::memcpy(block, data, size);
    if (size <= 8 * FEW) compress<FEW>(state, block, count + size, true);
    else compress<WORDS>(state, block, count + size, true);
    return state[0];
}

}  // namespace keyblock
