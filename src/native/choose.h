// Rows that were chosen from others: which of them row i is. For kernels that rewrite row numbers.
#pragma once

#include <cstdint>

namespace penstock {

// Frozen once it is made; any thread may ask it. Make it and drop it with the interpreter lock.
class Choice {
 public:
  virtual ~Choice() = default;
  // Writes to out[i] which row the chosen row positions[i] is; they may be one array. False if one is out of range.
  virtual bool rows(const int64_t* positions, int64_t* out, int64_t count) const = 0;
  // The same for the `count` chosen rows from `first` on, several times as fast.
  virtual bool span(int64_t first, int64_t count, int64_t* out) const = 0;
};

}  // namespace penstock
