// Rows from anywhere into the places of a block. The rows lie far apart, so the time is the memory's latency:
// asking for rows some way ahead of the copy hides most of it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "buffer.h"

namespace penstock {
namespace {

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
  static inline void ask(const uint8_t* from, int64_t nbytes) {
    prefetch(from, std::min(nbytes, kPrefetchBytes));
  }
};

enum class Problem { kNone, kRow, kSlot };
struct Outcome {
  Problem problem = Problem::kNone;
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

  int64_t ahead() const {
    return row_nbytes == 0 ? 0 : std::clamp<int64_t>(kAheadBytes / row_nbytes, 2, kMaxAhead);
  }

  // Row j goes to slot j. Whole runs of a group at a time: no division a row.
  template <int64_t kNbytes>
  Outcome run_in_order(const int64_t* rows, int64_t count) const {
    int64_t row[kChunk + kMaxAhead];
    const int64_t lead = ahead();
    int64_t group = 0;
    int64_t in_group = 0;
    for (int64_t done = 0; done < count; done += kChunk) {
      const int64_t chunk = std::min(kChunk, count - done);
      const int64_t good = take_checked(rows + done, chunk, source_rows, row);
      if (good < chunk) return {Problem::kRow, done + good, row[good]};
      fill_lead(rows + done + chunk, count - done - chunk, row, chunk, lead);
      for (int64_t at = 0; at < chunk;) {
        const int64_t run = std::min(chunk - at, group_rows - in_group);
        uint8_t* to = out + group * group_stride + in_group * slot_stride;
        for (int64_t i = 0; i < run; ++i, ++at, to += slot_stride) {
          Copy<kNbytes>::ask(source + row[at + lead] * source_stride, row_nbytes);
          Copy<kNbytes>::row(to, source + row[at] * source_stride, row_nbytes);
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
      if (good < chunk && good <= good_slots) return {Problem::kRow, done + good, row[good]};
      if (good_slots < chunk) return {Problem::kSlot, done + good_slots, slot[good_slots]};
      fill_lead(rows + done + chunk, count - done - chunk, row, chunk, lead);
      if (is_flat) {
        for (int64_t i = 0; i < chunk; ++i) slot[i] *= slot_stride;
      } else {
        for (int64_t i = 0; i < chunk; ++i) {
          slot[i] = slot[i] / group_rows * group_stride + slot[i] % group_rows * slot_stride;
        }
      }
      for (int64_t i = 0; i < chunk; ++i) {
        Copy<kNbytes>::ask(source + row[i + lead] * source_stride, row_nbytes);
        Copy<kNbytes>::row(out + slot[i], source + row[i] * source_stride, row_nbytes);
      }
    }
    return {};
  }

  template <int64_t kNbytes>
  Outcome run(const int64_t* rows, const int64_t* slots, int64_t count) const {
    return slots ? run_scattered<kNbytes>(rows, slots, count) : run_in_order<kNbytes>(rows, count);
  }

  Outcome run(const int64_t* rows, const int64_t* slots, int64_t count) const {
    switch (row_nbytes) {
      case 1:
        return run<1>(rows, slots, count);
      case 2:
        return run<2>(rows, slots, count);
      case 4:
        return run<4>(rows, slots, count);
      case 8:
        return run<8>(rows, slots, count);
      case 16:
        return run<16>(rows, slots, count);
      default:
        return run<0>(rows, slots, count);
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

void check_out(const Buffer& out, int64_t row_nbytes) {
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
                        std::to_string(out.stride(axis)) + " bytes for rows of " + std::to_string(row_nbytes) +
                        ".");
    }
  }
  int64_t slots = 0;
  if (__builtin_mul_overflow(groups, group_rows, &slots)) {
    raise_value_error("out must have fewer than 2**63 slots, got " + std::to_string(groups) + " x " +
                      std::to_string(group_rows) + ".");
  }
}

void gather(nb::handle source_object, nb::handle rows_object, nb::handle out_object, nb::handle at_object) {
  const Buffer source(source_object, "source", Element::kUint8, 2, Access::kRead);
  const Buffer rows(rows_object, "rows", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 3, Access::kWrite);
  const int64_t count = rows.size(0);
  const Gather job{source.data<const uint8_t>(), source.size(0), source.stride(0), source.size(1),
                   out.data<uint8_t>(),          out.size(0),    out.size(1),      out.stride(0),
                   out.stride(1)};
  check_out(out, job.row_nbytes);
  if (may_share_memory(source, out)) raise_value_error("out must share no memory with source.");

  Outcome outcome;
  const int64_t slots = job.groups * job.group_rows;
  if (at_object.is_none()) {
    if (count > slots) {
      raise_value_error("out must have a slot for each row: got " + std::to_string(count) + " rows for " +
                        std::to_string(slots) + " slots.");
    }
    nb::gil_scoped_release release;
    outcome = job.run(rows.data<const int64_t>(), nullptr, count);
  } else {
    const Buffer at(at_object, "at", Element::kInt64, 1, Access::kRead);
    at.require_size(0, count, "rows");
    nb::gil_scoped_release release;
    outcome = job.run(rows.data<const int64_t>(), at.data<const int64_t>(), count);
  }
  if (outcome.problem != Problem::kNone) {
    const bool is_row = outcome.problem == Problem::kRow;
    raise_index_error(std::string(is_row ? "rows[" : "at[") + std::to_string(outcome.index) + "] must be in [0, " +
                      std::to_string(is_row ? job.source_rows : slots) + "), got " +
                      std::to_string(outcome.value) + ".");
  }
}

struct Span {
  int64_t start;
  int64_t length;
  int64_t out_start;
};

struct SpanOutcome {
  const char* problem = nullptr;  // the name of the array that holds the bad value
  int64_t index = 0;
  Span span{};
};

SpanOutcome copy_spans(const Buffer& source, const Buffer& out, const int64_t* starts, const int64_t* lengths,
                       const int64_t* out_starts, int64_t count) {
  constexpr int64_t kSpanAhead = 8;
  const auto* from = source.data<const uint8_t>();
  auto* to = out.data<uint8_t>();
  const int64_t source_nbytes = source.size(0);
  const int64_t out_nbytes = out.size(0);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kSpanAhead < count) {
      const int64_t ahead = starts[i + kSpanAhead];
      if (ahead >= 0 && ahead < source_nbytes) prefetch(from + ahead, std::min(kLine, source_nbytes - ahead));
    }
    const Span span{starts[i], lengths[i], out_starts[i]};
    if (span.length < 0) return {"lengths", i, span};
    // By subtraction: a sum could overflow.
    if (span.start < 0 || span.start > source_nbytes - span.length) return {"starts", i, span};
    if (span.out_start < 0 || span.out_start > out_nbytes - span.length) return {"out_starts", i, span};
    if (span.length > 0) std::memcpy(to + span.out_start, from + span.start, static_cast<size_t>(span.length));
  }
  return {};
}

void gather_spans(nb::handle source_object, nb::handle starts_object, nb::handle lengths_object,
                  nb::handle out_object, nb::handle out_starts_object) {
  const Buffer source(source_object, "source", Element::kUint8, 1, Access::kRead);
  const Buffer starts(starts_object, "starts", Element::kInt64, 1, Access::kRead);
  const Buffer lengths(lengths_object, "lengths", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  const Buffer out_starts(out_starts_object, "out_starts", Element::kInt64, 1, Access::kRead);
  const int64_t count = starts.size(0);
  lengths.require_size(0, count, "starts");
  out_starts.require_size(0, count, "starts");
  if (may_share_memory(source, out)) raise_value_error("out must share no memory with source.");

  SpanOutcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = copy_spans(source, out, starts.data<const int64_t>(), lengths.data<const int64_t>(),
                         out_starts.data<const int64_t>(), count);
  }
  if (outcome.problem == nullptr) return;
  const std::string where = std::string(outcome.problem) + "[" + std::to_string(outcome.index) + "]";
  const auto& span = outcome.span;
  if (span.length < 0) {
    raise_value_error(where + " must be at least 0, got " + std::to_string(span.length) + ".");
  }
  const bool is_source = *outcome.problem == 's';
  raise_index_error(where + " must leave room for " + std::to_string(span.length) + " bytes in the " +
                    std::to_string((is_source ? source : out).size(0)) + " of " + (is_source ? "source" : "out") +
                    ", got " + std::to_string(is_source ? span.start : span.out_start) + ".");
}

}  // namespace

void bind_gather(nb::module_& m) {
  m.def("gather", &gather, nb::arg("source"), nb::arg("rows"), nb::arg("out"), nb::arg("at") = nb::none(),
        "Copy source[rows[j]] to slot j, or at[j], of out, whose slots are the rows of its groups one after another.");
  m.def("gather_spans", &gather_spans, nb::arg("source"), nb::arg("starts"), nb::arg("lengths"), nb::arg("out"),
        nb::arg("out_starts"), "Copy lengths[j] bytes from source[starts[j]:] to out[out_starts[j]:], for each j.");
}

}  // namespace penstock
