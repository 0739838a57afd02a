// BLAKE2b (RFC 7693) with a digest of 8 bytes and without a key.
#pragma once
#include <cstddef>
#include <cstdint>

namespace keyblock {

// The digest as a little-endian number.
uint64_t blake2b_8(const uint8_t* data, size_t size);

}  // namespace keyblock
