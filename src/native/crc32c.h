// CRC32C (Castagnoli), and checksums of pieces that follow each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

// With the processor's instruction where there is one. `before` is the checksum of the bytes before these.
uint32_t crc32c(const uint8_t* data, size_t nbytes, uint32_t before = 0);
// The same from tables: for processors without it, and to test against.
uint32_t crc32c_portable(const uint8_t* data, size_t nbytes, uint32_t before = 0);

// Returns the checksum of two pieces, one after the other, from those of each; any CRC of 32 bits, by its polynomial.
uint32_t combined_crc(uint32_t first, uint32_t second, uint64_t second_nbytes, uint32_t polynomial);

// Returns what the CRC32C of a piece counts for in that of a longer one, which goes on for `nbytes` bytes: the
// checksum of the whole is the XOR of what its pieces count for.
uint32_t moved_crc32c(uint32_t crc, uint64_t nbytes);

}  // namespace penstock
