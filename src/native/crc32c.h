// CRC32C (Castagnoli): of bytes, and of runs of rows as they were read from a file.
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

// Rows that follow each other, one at least, from the byte `place` of a buffer on.
struct Stretch {
  int64_t row;
  int64_t place;
  int64_t length;
};

// Where runs begin in an array of `num_rows` rows: every `run_rows` rows, the first one `lead` rows early.
struct RunGrid {
  int64_t run_rows;
  int64_t lead;
  int64_t num_rows;

  int64_t run_of(int64_t row) const { return (row + lead) / run_rows; }
  int64_t start_of(int64_t run) const {
    const int64_t start = run * run_rows - lead;
    return start > 0 ? start : 0;
  }
  int64_t stop_of(int64_t run) const {
    const int64_t stop = (run + 1) * run_rows - lead;
    return stop < num_rows ? stop : num_rows;
  }
  int64_t num_runs() const { return num_rows == 0 ? 0 : run_of(num_rows - 1) + 1; }

  // Returns the first run whose rows are all there, one after the other, and have another checksum than expected;
  // -1 if there is none. A run may go on from one stretch to the next.
  int64_t first_bad(const uint8_t* data, const Stretch* stretches, int64_t count, int64_t width,
                    const uint32_t* expected) const;
};

}  // namespace penstock
