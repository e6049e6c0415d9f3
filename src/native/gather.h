// Copies of rows from anywhere into the places of a block, for kernels: what gather.cpp is made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "buffer.h"

namespace penstock {

// Indexes are copied, checked, and then used from the copy, this many at a time: the arrays belong to Python and
// another thread may write to them.
constexpr int64_t kChunk = 512;
constexpr int64_t kLine = 64;
// How far ahead of the copy to ask for memory. Measured: 2 to 8 KB are alike for wide rows, and more than
// 32 narrow rows gain nothing, as a core has only so many outstanding misses.
constexpr int64_t kAheadBytes = 4096;
constexpr int64_t kMaxAhead = 32;
// What is beyond this of one row the processor's own prefetching finds.
constexpr int64_t kPrefetchBytes = 1024;

inline void prefetch(const uint8_t* address, int64_t nbytes) {
  if (nbytes == 0) return;
  for (int64_t at = 0; at < nbytes; at += kLine) __builtin_prefetch(address + at, 0, 3);
  // A row that starts in the middle of a line ends in one more.
  __builtin_prefetch(address + nbytes - 1, 0, 3);
}

// Copies of a size known to the compiler are one or two moves; kNbytes == 0 is any size.
template <int64_t kNbytes>
struct Copy {
  static inline void row(uint8_t* to, const uint8_t* from, int64_t) { std::memcpy(to, from, kNbytes); }
  static inline void ask(const uint8_t* from, int64_t) { __builtin_prefetch(from, 0, 3); }
};
template <>
struct Copy<0> {
  static inline void row(uint8_t* to, const uint8_t* from, int64_t nbytes) {
    std::memcpy(to, from, static_cast<size_t>(nbytes));
  }
  static inline void ask(const uint8_t* from, int64_t nbytes) { prefetch(from, std::min(nbytes, kPrefetchBytes)); }
};

enum class Misplaced { kNone, kRow, kSlot };
struct Outcome {
  Misplaced problem = Misplaced::kNone;
  int64_t index = 0;
  int64_t value = 0;
};

// Copies `count` indexes, checks that they are in [0, limit) and returns how many are before the first that is not.
inline int64_t take_checked(const int64_t* from, int64_t count, int64_t limit, int64_t* to) {
  bool is_in = true;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = from[i];
    is_in &= static_cast<uint64_t>(to[i]) < static_cast<uint64_t>(limit);
  }
  if (is_in) return count;
  return std::find_if(to, to + count, [limit](int64_t v) { return v < 0 || v >= limit; }) - to;
}

struct Gather {
  const uint8_t* source;
  int64_t source_rows;
  int64_t source_stride;
  int64_t row_nbytes;
  uint8_t* out;
  int64_t groups;
  int64_t group_rows;
  int64_t group_stride;
  int64_t slot_stride;
  // Rows from this one on lie elsewhere, as far apart: `rest` is where the first of them is.
  int64_t first_rows = INT64_MAX;
  const uint8_t* rest = nullptr;

  // By numbers: strides may be negative.
  const uint8_t* place_of(int64_t row) const {
    const bool is_first = row < first_rows;
    const auto start = reinterpret_cast<uintptr_t>(is_first ? source : rest);
    const auto places = static_cast<uint64_t>(row) - (is_first ? 0 : static_cast<uint64_t>(first_rows));
    return reinterpret_cast<const uint8_t*>(start + places * static_cast<uint64_t>(source_stride));
  }

  int64_t ahead() const { return row_nbytes == 0 ? 0 : std::clamp<int64_t>(kAheadBytes / row_nbytes, 2, kMaxAhead); }

  // Row j goes to slot first + j. Whole runs of a group at a time: no division a row.
  template <int64_t kNbytes>
  Outcome run_in_order(const int64_t* rows, int64_t count, int64_t first) const {
    int64_t row[kChunk + kMaxAhead];
    const int64_t lead = ahead();
    int64_t group = first == 0 ? 0 : first / group_rows;
    int64_t in_group = first - group * group_rows;
    for (int64_t done = 0; done < count; done += kChunk) {
      const int64_t chunk = std::min(kChunk, count - done);
      const int64_t good = take_checked(rows + done, chunk, source_rows, row);
      if (good < chunk) return {Misplaced::kRow, done + good, row[good]};
      fill_lead(rows + done + chunk, count - done - chunk, row, chunk, lead);
      for (int64_t at = 0; at < chunk;) {
        const int64_t run = std::min(chunk - at, group_rows - in_group);
        uint8_t* to = out + group * group_stride + in_group * slot_stride;
        for (int64_t i = 0; i < run; ++i, ++at, to += slot_stride) {
          Copy<kNbytes>::ask(place_of(row[at + lead]), row_nbytes);
          Copy<kNbytes>::row(to, place_of(row[at]), row_nbytes);
        }
        in_group += run;
        if (in_group == group_rows) {
          in_group = 0;
          ++group;
        }
      }
    }
    return {};
  }

  // Row j goes to slot slots[j].
  template <int64_t kNbytes>
  Outcome run_scattered(const int64_t* rows, const int64_t* slots, int64_t count) const {
    int64_t row[kChunk + kMaxAhead];
    int64_t slot[kChunk];
    const int64_t lead = ahead();
    // Groups that follow one another like their rows are one group: the usual block, and no division a row.
    const bool is_flat = groups == 1 || group_stride == group_rows * slot_stride;
    for (int64_t done = 0; done < count; done += kChunk) {
      const int64_t chunk = std::min(kChunk, count - done);
      const int64_t good = take_checked(rows + done, chunk, source_rows, row);
      const int64_t good_slots = take_checked(slots + done, chunk, groups * group_rows, slot);
      if (good < chunk && good <= good_slots) return {Misplaced::kRow, done + good, row[good]};
      if (good_slots < chunk) return {Misplaced::kSlot, done + good_slots, slot[good_slots]};
      fill_lead(rows + done + chunk, count - done - chunk, row, chunk, lead);
      if (is_flat) {
        for (int64_t i = 0; i < chunk; ++i) slot[i] *= slot_stride;
      } else {
        for (int64_t i = 0; i < chunk; ++i) {
          slot[i] = slot[i] / group_rows * group_stride + slot[i] % group_rows * slot_stride;
        }
      }
      for (int64_t i = 0; i < chunk; ++i) {
        Copy<kNbytes>::ask(place_of(row[i + lead]), row_nbytes);
        Copy<kNbytes>::row(out + slot[i], place_of(row[i]), row_nbytes);
      }
    }
    return {};
  }

  template <int64_t kNbytes>
  Outcome run(const int64_t* rows, const int64_t* slots, int64_t count, int64_t first) const {
    return slots ? run_scattered<kNbytes>(rows, slots, count) : run_in_order<kNbytes>(rows, count, first);
  }

  // To the given slots, or to those from `first` on.
  Outcome run(const int64_t* rows, const int64_t* slots, int64_t count, int64_t first = 0) const {
    switch (row_nbytes) {
      case 1:
        return run<1>(rows, slots, count, first);
      case 2:
        return run<2>(rows, slots, count, first);
      case 4:
        return run<4>(rows, slots, count, first);
      case 8:
        return run<8>(rows, slots, count, first);
      case 16:
        return run<16>(rows, slots, count, first);
      default:
        return run<0>(rows, slots, count, first);
    }
  }

 private:
  // Puts the rows to ask for ahead of time after the last of a chunk. An index out of range is replaced: it will be
  // reported when its own chunk comes.
  void fill_lead(const int64_t* next, int64_t available, int64_t* row, int64_t chunk, int64_t lead) const {
    const int64_t from_next = std::min(lead, available);
    for (int64_t i = 0; i < lead; ++i) {
      const int64_t candidate = i < from_next ? next[i] : row[chunk - 1];
      row[chunk + i] = candidate >= 0 && candidate < source_rows ? candidate : row[chunk - 1];
    }
  }
};

// Raises if slots are not of that many bytes, or overlap.
inline void check_slots(const Buffer& out, int64_t row_nbytes) {
  const int64_t groups = out.size(0);
  const int64_t group_rows = out.size(1);
  if (out.size(2) != row_nbytes) {
    raise_value_error("out must have rows of " + std::to_string(row_nbytes) + " bytes like source, got " +
                      std::to_string(out.size(2)) + ".");
  }
  // All that can be told of overlap without knowing how the axes were meant. Strides of no slots mean nothing.
  for (int axis = 0; groups > 0 && group_rows > 0 && axis < 2; ++axis) {
    if (out.size(axis) > 1 && std::abs(out.stride(axis)) < row_nbytes) {
      raise_value_error("out must not overlap itself: axis " + std::to_string(axis) + " has a stride of " +
                        std::to_string(out.stride(axis)) + " bytes for rows of " + std::to_string(row_nbytes) + ".");
    }
  }
  int64_t slots = 0;
  if (__builtin_mul_overflow(groups, group_rows, &slots)) {
    raise_value_error("out must have fewer than 2**63 slots, got " + std::to_string(groups) + " x " +
                      std::to_string(group_rows) + ".");
  }
}

}  // namespace penstock
