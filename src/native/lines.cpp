// Lines of text and records of CSV: where they begin and end, found many bytes at a time; and whether text is UTF-8.
// A quote opens only at the start of a field, and line ends between quotes end no record.
#include <cstring>
#include <string>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "buffer.h"
#include "utf8.h"

namespace penstock {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kNumBuckets = 512;
constexpr int64_t kHasQuotes = 1;
constexpr int64_t kHasHex = 2;
constexpr int64_t kHasNan = 4;

struct Dialect {
  bool is_csv;  // Else lines end at '\n' only, and nothing is quoted.
  uint8_t separator;
  uint8_t quote;
};

// What was seen on the way.
struct Facts {
  int64_t flags = 0;
  int64_t fault = -1;     // The byte after a closing quote that is no separator and ends no line; the first such.
  int64_t unclosed = -1;  // The quote that is never closed.
};

// A bit for each of 64 bytes that matters: line ends and, in CSV, quotes and what numbers should not have.
uint64_t marks_of(const uint8_t* bytes, const Dialect& dialect) {
#if defined(__SSE2__)
  uint64_t mask = 0;
  const __m128i line = _mm_set1_epi8('\n');
  if (!dialect.is_csv) {
    for (int part = 0; part < 4; ++part) {
      const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * part));
      mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(v, line)))) << (16 * part);
    }
    return mask;
  }
  const __m128i carriage = _mm_set1_epi8('\r');
  const __m128i quote = _mm_set1_epi8(static_cast<char>(dialect.quote));
  const __m128i lower = _mm_set1_epi8(0x20);
  const __m128i hex = _mm_set1_epi8('x');
  const __m128i opening = _mm_set1_epi8('(');
  for (int part = 0; part < 4; ++part) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * part));
    __m128i found = _mm_or_si128(_mm_cmpeq_epi8(v, line), _mm_cmpeq_epi8(v, carriage));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(v, quote));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_or_si128(v, lower), hex));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(v, opening));
    mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(found))) << (16 * part);
  }
  return mask;
#else
  uint64_t mask = 0;
  for (int i = 0; i < kWidth; ++i) {
    const uint8_t b = bytes[i];
    const bool is_marked =
        b == '\n' || (dialect.is_csv && (b == '\r' || b == dialect.quote || (b | 0x20) == 'x' || b == '('));
    mask |= static_cast<uint64_t>(is_marked) << i;
  }
  return mask;
#endif
}

// Walks over marks; `next` gives the first one at or after a place, or the size.
class Marks {
 public:
  Marks(const uint8_t* data, int64_t size, const Dialect& dialect) : data_(data), size_(size), dialect_(dialect) {
    load(0);
  }

  int64_t next(int64_t at) {
    if (at >= base_ + kWidth) {
      load(at);
    } else {
      mask_ &= ~uint64_t{0} << (at - base_);
    }
    while (mask_ == 0) {
      if (base_ + kWidth >= size_) return size_;
      load(base_ + kWidth);
    }
    return base_ + __builtin_ctzll(mask_);
  }

 private:
  void load(int64_t base) {
    base_ = base;
    mask_ = 0;
    if (base + kWidth <= size_) {
      mask_ = marks_of(data_ + base, dialect_);
    } else if (base < size_) {
      uint8_t tail[kWidth] = {0};  // No byte 0 is a mark.
      std::memcpy(tail, data_ + base, static_cast<size_t>(size_ - base));
      mask_ = marks_of(tail, dialect_);
    }
  }

  const uint8_t* data_;
  int64_t size_;
  const Dialect& dialect_;
  int64_t base_ = 0;
  uint64_t mask_ = 0;
};

// Returns the byte after the quote that closes the field whose quote is at `open`, or -1 if there is none. A quote at
// the very end may be half of two, unless this is the end of the file.
int64_t closed(const uint8_t* data, int64_t size, int64_t open, uint8_t quote, bool is_last) {
  int64_t at = open + 1;
  while (at < size) {
    const void* found = std::memchr(data + at, quote, static_cast<size_t>(size - at));
    if (found == nullptr) return -1;
    at = static_cast<const uint8_t*>(found) - data + 1;
    if (at == size) return is_last ? at : -1;
    if (data[at] != quote) return at;
    ++at;
  }
  return -1;
}

// Notes what else could be taken for a number, in a field between quotes.
void look_into(const uint8_t* field, int64_t size, Facts& facts) {
  for (const char mark : {'x', 'X', '('}) {
    int64_t at = 1;
    while (at < size) {
      const void* found = std::memchr(field + at, mark, static_cast<size_t>(size - at));
      if (found == nullptr) break;
      at = static_cast<const uint8_t*>(found) - field;
      if (mark == '(' ? (field[at - 1] | 0x20) == 'n' : field[at - 1] == '0') {
        facts.flags |= mark == '(' ? kHasNan : kHasHex;
        break;
      }
      ++at;
    }
  }
}

// Calls `visit(begin, start, end)` for each record: it is [start, end), and [begin, start) are blank lines before it.
// The byte at `end` ends it, unless it is the last one of the file. `visit` returns whether to go on.
template <typename Visit>
void each_record(const uint8_t* data, int64_t size, const Dialect& dialect, bool is_last, Facts& facts, Visit&& visit) {
  Marks marks(data, size, dialect);
  int64_t begin = 0;
  int64_t start = 0;
  int64_t at = 0;
  while (at < size) {
    const int64_t mark = marks.next(at);
    if (mark >= size) break;
    at = mark + 1;
    const uint8_t byte = data[mark];
    if (byte == '\n' || (byte == '\r' && dialect.is_csv)) {
      if (!dialect.is_csv || mark > start) {
        if (!visit(begin, start, mark)) return;
        begin = at;
      }
      start = at;
    } else if (byte == dialect.quote) {
      if (mark != start && data[mark - 1] != dialect.separator) continue;
      facts.flags |= kHasQuotes;
      at = closed(data, size, mark, dialect.quote, is_last);
      if (at < 0) {
        facts.unclosed = mark;
        return;
      }
      look_into(data + mark, at - mark, facts);
      const bool is_end = at == size || data[at] == dialect.separator || data[at] == '\n' || data[at] == '\r';
      if (!is_end && facts.fault < 0) facts.fault = at;
    } else if (byte == '(') {
      if (mark > 0 && (data[mark - 1] | 0x20) == 'n') facts.flags |= kHasNan;
    } else if (mark > 0 && data[mark - 1] == '0') {
      facts.flags |= kHasHex;
    }
  }
  if (is_last && start < size) visit(begin, start, size);
}

// Lengths are counted in buckets whose edges are numbers of four binary digits.
int64_t bucket_of(int64_t length) {
  if (length < 16) return length;
  const int shift = 60 - __builtin_clzll(static_cast<uint64_t>(length));
  return 8 * shift + (length >> shift);
}

Dialect dialect_of(int separator, int quote) {
  if (separator < -1 || separator > 255 || quote < 0 || quote > 255) {
    raise_value_error("separator and quote must be bytes; separator -1 stands for lines of text.");
  }
  for (const int mark : {separator, quote}) {
    if (separator >= 0 && (mark == 0 || mark == '\n' || mark == '\r')) {
      raise_value_error("separator and quote must not be 0 or end lines.");
    }
  }
  if (separator == quote) raise_value_error("separator and quote must differ.");
  return {separator >= 0, static_cast<uint8_t>(separator), static_cast<uint8_t>(quote)};
}

nb::tuple scan_lines(nb::handle data_object, int separator, int quote, int64_t most, bool is_last,
                     nb::handle ends_object, nb::handle rows_object, nb::handle lengths_object) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const Buffer ends(ends_object, "ends", Element::kInt64, 1, Access::kWrite);
  const Buffer rows(rows_object, "rows", Element::kInt64, 1, Access::kWrite);
  const Buffer lengths(lengths_object, "lengths", Element::kInt64, 1, Access::kWrite);
  const Dialect dialect = dialect_of(separator, quote);
  if (most < 1) raise_value_error("most must be at least 1, got " + std::to_string(most) + ".");
  rows.require_size(0, ends.size(0), "ends");
  lengths.require_size(0, kNumBuckets, "the buckets");
  int64_t num_runs = 0;
  bool is_full = false;
  Facts facts;
  {
    nb::gil_scoped_release release;
    const int64_t size = data.size(0);
    int64_t* const run_ends = ends.data<int64_t>();
    int64_t* const run_rows = rows.data<int64_t>();
    int64_t* const counts = lengths.data<int64_t>();
    int64_t open_counts[kNumBuckets] = {0};  // Of the run that has not ended yet.
    int64_t run_start = 0;
    int64_t num_rows = 0;
    const auto close = [&](int64_t end) {
      if (num_runs == ends.size(0)) {
        is_full = true;
        return false;
      }
      run_ends[num_runs] = end;
      run_rows[num_runs++] = num_rows;
      for (int64_t i = 0; i < kNumBuckets; ++i) counts[i] += open_counts[i];
      std::memset(open_counts, 0, sizeof open_counts);
      run_start = end;
      num_rows = 0;
      return true;
    };
    each_record(data.data<const uint8_t>(), size, dialect, is_last, facts,
                [&](int64_t begin, int64_t start, int64_t end) {
                  const int64_t next = end < size ? end + 1 : size;
                  if (num_rows > 0 && next - run_start > most && !close(begin)) return false;
                  ++num_rows;
                  ++open_counts[bucket_of(end - start)];
                  return true;
                });
    if (is_last && !is_full && facts.unclosed < 0) {
      if (num_rows > 0) {
        close(size);
      } else if (num_runs > 0) {
        run_ends[num_runs - 1] = size;  // Blank lines.
      }
    }
  }
  if (is_full) raise_value_error("ends must have room for every run, got " + std::to_string(ends.size(0)) + ".");
  return nb::make_tuple(num_runs, facts.flags, facts.fault, facts.unclosed);
}

int64_t split_lines(nb::handle data_object, int separator, int quote, nb::handle starts_object,
                    nb::handle stops_object) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const Buffer starts(starts_object, "starts", Element::kInt64, 1, Access::kWrite);
  const Buffer stops(stops_object, "stops", Element::kInt64, 1, Access::kWrite);
  const Dialect dialect = dialect_of(separator, quote);
  stops.require_size(0, starts.size(0), "starts");
  const int64_t room = starts.size(0);
  int64_t count = 0;
  {
    nb::gil_scoped_release release;
    const uint8_t* const bytes = data.data<const uint8_t>();
    int64_t* const firsts = starts.data<int64_t>();
    int64_t* const lasts = stops.data<int64_t>();
    Facts facts;
    each_record(bytes, data.size(0), dialect, true, facts, [&](int64_t, int64_t start, int64_t end) {
      if (count < room) {
        firsts[count] = start;
        const bool has_return = !dialect.is_csv && end > start && bytes[end - 1] == '\r';
        lasts[count] = has_return ? end - 1 : end;
      }
      return ++count <= room;
    });
  }
  return count;
}

enum State : int { kFieldStart = 0, kInField = 1, kInQuotes = 2, kAfterQuote = 3 };

// Byte by byte, so that text can come in pieces that end anywhere.
nb::tuple line_ends(nb::handle data_object, int separator, int quote, int state) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const Dialect dialect = dialect_of(separator, quote);
  if (state < kFieldStart || state > kAfterQuote)
    raise_value_error("state must be 0 to 3, got " + std::to_string(state) + ".");
  if (!dialect.is_csv && state != kFieldStart) raise_value_error("state must be 0 for text, which has no quotes.");
  int64_t first = 0;
  int64_t last = 0;
  {
    nb::gil_scoped_release release;
    const uint8_t* const bytes = data.data<const uint8_t>();
    const int64_t size = data.size(0);
    for (int64_t at = 0; at < size; ++at) {
      const uint8_t byte = bytes[at];
      if (dialect.is_csv && byte == dialect.quote && state != kInField) {
        state = state == kInQuotes ? kAfterQuote : kInQuotes;
        continue;
      }
      if (state == kInQuotes) continue;
      if (byte == '\n') {
        last = at + 1;
        if (first == 0) first = last;
      }
      const bool is_end = dialect.is_csv && (byte == '\n' || byte == '\r' || byte == dialect.separator);
      state = is_end || !dialect.is_csv ? kFieldStart : kInField;
    }
  }
  return nb::make_tuple(first, last, state);
}

bool is_utf8(nb::handle data_object) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  nb::gil_scoped_release release;
  return check_utf8(data.data<const uint8_t>(), data.size(0));
}

}  // namespace

void bind_lines(nb::module_& m) {
  m.attr("HAS_QUOTES") = kHasQuotes;
  m.attr("HAS_HEX") = kHasHex;
  m.attr("HAS_NAN") = kHasNan;
  m.attr("NUM_LENGTHS") = kNumBuckets;
  m.def("scan_lines", &scan_lines, nb::arg("data"), nb::arg("separator"), nb::arg("quote"), nb::arg("most"),
        nb::arg("is_last"), nb::arg("ends"), nb::arg("rows"), nb::arg("lengths"), "Find runs of whole records.");
  m.def("split_lines", &split_lines, nb::arg("data"), nb::arg("separator"), nb::arg("quote"), nb::arg("starts"),
        nb::arg("stops"), "Find where each record begins and ends.");
  m.def("line_ends", &line_ends, nb::arg("data"), nb::arg("separator"), nb::arg("quote"), nb::arg("state"),
        "Find line feeds that are not between quotes.");
  m.def("is_utf8", &is_utf8, nb::arg("data"), "Return whether bytes are UTF-8.");
}

}  // namespace penstock
