// Lines of text without their ends, copied one after the other, from memory or from a file.
#include <cstring>
#include <string>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "buffer.h"
#include "jobs.h"
#include "open_file.h"
#include "system.h"
#include "utf8.h"

namespace penstock {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kMaxLines = int64_t{1} << 62;
#if defined(__SSE2__)
// Lines up to this long are copied here, 16 bytes at a time: a call of memcpy costs as much as a short line does.
constexpr int64_t kShort = 256;
#endif

// Finds line feeds 64 bytes at a time, and looks on the way whether all bytes are ASCII: both take one load.
class Scan {
 public:
  // Returns a bit for each of the next 64 bytes that is a line feed.
  uint64_t line_feeds(const uint8_t* bytes) {
    uint64_t mask = 0;
#if defined(__SSE2__)
    const __m128i line = _mm_set1_epi8('\n');
    for (int part = 0; part < 4; ++part) {
      const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * part));
      seen_ = _mm_or_si128(seen_, v);
      mask |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(v, line)))) << (16 * part);
    }
#else
    for (int i = 0; i < kWidth; ++i) {
      seen_ |= bytes[i];
      mask |= static_cast<uint64_t>(bytes[i] == '\n') << i;
    }
#endif
    return mask;
  }

#if defined(__SSE2__)
  bool is_ascii() const { return _mm_movemask_epi8(seen_) == 0; }

 private:
  __m128i seen_ = _mm_setzero_si128();
#else
  bool is_ascii() const { return seen_ < 0x80; }

 private:
  uint8_t seen_ = 0;
#endif
};

// Copies lines from `first` on without their ends, as many as there is room for offsets.
struct LineCopy {
  LineCopy(const Buffer& out, const Buffer& offsets, int64_t first)
      : to(out.data<uint8_t>()),
        room(out.size(0)),
        edges(offsets.data<int64_t>()),
        wanted(offsets.size(0) - 1),
        first(first) {
    if (wanted < 0) raise_value_error("offsets must have room for one more than the lines.");
    if (first < 0 || first > kMaxLines - wanted) {
      raise_value_error("first must be 0 or more, and below 2**62, got " + std::to_string(first) + ".");
    }
    edges[0] = 0;
  }

  // Returns false if there is no room for their bytes. What follows the last line feed is a line, too.
  bool add(const uint8_t* bytes, int64_t size) {
    Scan scan;
    int64_t start = 0;
    for (int64_t base = 0; base < size; base += kWidth) {
      uint64_t mask = 0;
      if (base + kWidth <= size) {
        mask = scan.line_feeds(bytes + base);
      } else {
        uint8_t tail[kWidth] = {0};
        std::memcpy(tail, bytes + base, static_cast<size_t>(size - base));
        mask = scan.line_feeds(tail);
      }
      for (; mask != 0; mask &= mask - 1) {
        const int64_t end = base + __builtin_ctzll(mask);
        if (!add_line(bytes, start, end, size)) return false;
        start = end + 1;
      }
    }
    if (start < size && !add_line(bytes, start, size, size)) return false;
    is_text = is_text && (scan.is_ascii() || check_utf8(bytes, size));
    return true;
  }

  bool add_line(const uint8_t* bytes, int64_t start, int64_t end, int64_t size) {
    const int64_t line = count++ - first;
    if (line < 0 || line >= wanted) return true;
    const int64_t length = end - start - (end > start && bytes[end - 1] == '\r' ? 1 : 0);
    if (length > room - copied) return false;
    copy(to + copied, bytes + start, length, std::min(size - start, room - copied));
    copied += length;
    edges[line + 1] = copied;
    return true;
  }

  // Copies `length` bytes, and maybe up to 15 more of `most` that there are on both sides: the next line comes there.
  static void copy(uint8_t* __restrict to, const uint8_t* __restrict from, int64_t length, int64_t most) {
#if defined(__SSE2__)
    if (length <= kShort && length + 15 <= most) {
      for (int64_t at = 0; at < length; at += 16) {
        const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), v);
        __asm__ volatile("" : : : "memory");  // Else compilers make a call of memcpy of the loop.
      }
      return;
    }
#else
    (void)most;
#endif
    std::memcpy(to, from, static_cast<size_t>(length));
  }

  uint8_t* const to;
  const int64_t room;
  int64_t* const edges;
  const int64_t wanted;
  const int64_t first;
  int64_t count = 0;
  int64_t copied = 0;
  bool is_text = true;  // Whether all bytes so far are UTF-8.
};

// Returns how many lines there are (-1 if there is no room for those that are wanted), how many bytes were copied, and
// whether all of the text is UTF-8. One call for all of it: between two, a thread waits for the interpreter lock.
nb::tuple copy_lines(nb::handle text_object, int64_t first, nb::handle out_object, nb::handle offsets_object) {
  const Buffer text(text_object, "text", Element::kUint8, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  const Buffer offsets(offsets_object, "offsets", Element::kInt64, 1, Access::kWrite);
  LineCopy copy(out, offsets, first);
  if (may_share_memory(text, out)) raise_value_error("out must be apart from the text.");
  bool has_room = true;
  {
    nb::gil_scoped_release release;
    has_room = copy.add(text.data<const uint8_t>(), text.size(0));
  }
  return nb::make_tuple(has_room ? copy.count : -1, copy.copied, copy.is_text);
}

// The same for lines of a file that is read through the page cache, as many at a time as fit into a room: bytes that
// were just read are still in the core's own cache. It fails if a line is not UTF-8, is too long, or can't be read.
class LineWork : public Runnable {
 public:
  LineWork(int fd, int64_t offset, int64_t nbytes, int64_t num_lines, int64_t first, nb::handle out, nb::handle offsets)
      : file_(fd),
        offset_(offset),
        nbytes_(nbytes),
        num_lines_(num_lines),
        out_(out, "out", Element::kUint8, 1, Access::kWrite),
        offsets_(offsets, "offsets", Element::kInt64, 1, Access::kWrite),
        copy_(out_, offsets_, first) {
    if (offset < 0 || nbytes < 0) raise_value_error("offset and nbytes must be at least 0.");
  }

  bool run() override {
    const int64_t started = nanoseconds(CLOCK_MONOTONIC);
    const int64_t on_core = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    const bool is_good = file_.is_open() && read_all() && copy_.is_text && copy_.count == num_lines_;
    gather_ns = nanoseconds(CLOCK_MONOTONIC) - started;
    core_ns = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - on_core;
    return is_good;
  }

 private:
  bool read_all() {
    uint8_t* const bytes = room_of_thread();
    int64_t held = 0;  // Of a line whose end is still to come.
    int64_t left = nbytes_;
    while (left > 0) {
      const int64_t part = std::min(left, kRoomNbytes - held);
      if (part == 0 || !file_.read(bytes + held, part, offset_ + nbytes_ - left)) return false;
      left -= part;
      const int64_t size = held + part;
      int64_t whole = size;
      if (left > 0) {
        const uint8_t* const end = find_last(bytes, '\n', static_cast<size_t>(size));
        whole = end == nullptr ? 0 : end + 1 - bytes;
      }
      if (!copy_.add(bytes, whole)) return false;
      held = size - whole;
      std::memmove(bytes, bytes + whole, static_cast<size_t>(held));
    }
    return true;
  }

  OpenFile file_;
  const int64_t offset_;
  const int64_t nbytes_;
  const int64_t num_lines_;
  Buffer out_;
  Buffer offsets_;
  LineCopy copy_;
};

Job* line_job(int fd, int64_t offset, int64_t nbytes, int64_t num_lines, int64_t first, nb::handle out,
              nb::handle offsets) {
  return new Job(std::make_unique<LineWork>(fd, offset, nbytes, num_lines, first, out, offsets), num_lines);
}

}  // namespace

void bind_line_copy(nb::module_& m) {
  m.def("copy_lines", &copy_lines, nb::arg("text"), nb::arg("first"), nb::arg("out"), nb::arg("offsets"),
        "Copy lines without their ends.");
  m.def("line_job", &line_job, nb::arg("fd"), nb::arg("offset"), nb::arg("nbytes"), nb::arg("num_lines"),
        nb::arg("first"), nb::arg("out"), nb::arg("offsets"), nb::rv_policy::take_ownership,
        "Return the job that copies lines of a file without their ends.");
}

}  // namespace penstock
