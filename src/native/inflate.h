// Deflate, unpacked: what gzip, zlib and HDF5's deflate filter have between their headers and their checksums.
#pragma once

#include <cstdint>

namespace penstock {

enum class Inflated { kWhole, kDamaged, kCutOff, kTooMuch };

struct InflateResult {
  Inflated status;
  int64_t in_used;   // Bytes of the input, up to the end of the stream.
  int64_t out_used;  // Bytes that were written.
};

// Unpacks one deflate stream into `out`, and never writes past its end. Takes the streams that zlib takes, and refuses
// those that it refuses.
InflateResult inflate(const uint8_t* in, int64_t in_size, uint8_t* out, int64_t out_size);

// The Adler-32 of some bytes.
uint32_t adler32(const uint8_t* data, int64_t size);

}  // namespace penstock
