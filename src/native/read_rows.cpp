// Rows of a file that lie near each other, with others between them: read together, without those between them.
//
// Rows that mostly follow each other, as those of the larger part of a split do, are read right to where they belong.
// Others come by way of a room that stays in a core's cache: a second copy through memory would take as long as the read.
// So do all rows that have checksums together with those between them.
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "buffer.h"
#include "crc32c.h"
#include "gather.h"
#include "open_file.h"
#include "order.h"

namespace penstock {
namespace {

// Reading over a gap of this size costs less than another trip to the disk: as in read.cpp.
constexpr int64_t kGapNbytes = 64 << 10;
// A range of its own in a call to the system costs 20 ns, which is what a copy of this many bytes takes.
constexpr int64_t kRunNbytes = 1 << 10;
constexpr int kMaxRanges = 1024;       // What one call takes, on all systems that are common.
constexpr int64_t kRowsAtOnce = 4096;  // Of narrow rows: their numbers stay in the cache, too.
constexpr int64_t kRunsAtOnce = 2048;

// Whether a row is the next one; any numbers may be asked for.
bool follow(int64_t row, int64_t next) { return static_cast<uint64_t>(row) + 1 == static_cast<uint64_t>(next); }

// Makes checksums of bytes that follow each other in the file: one for each piece that cells of the file cut them into.
// Cells have `nbytes` bytes, from `start` on.
struct Sums {
  int64_t start;
  int64_t nbytes;
  uint32_t* to;
  int64_t left;             // How many there is room for.
  int64_t open_nbytes = 0;  // Of the cell that is open: how many are to come.
  bool is_open = false;     // Whether some have come.
  uint32_t crc = 0;

  // Begins at this place of the file.
  bool open(int64_t at) {
    if (at < start) return false;
    open_nbytes = nbytes - (at - start) % nbytes;
    return true;
  }

  bool add(const uint8_t* bytes, int64_t count) {
    while (count > 0) {
      const int64_t some = std::min(open_nbytes, count);
      crc = crc32c(bytes, static_cast<size_t>(some), crc);
      is_open = true;
      bytes += some;
      count -= some;
      open_nbytes -= some;
      if (open_nbytes == 0 && !close()) return false;
    }
    return true;
  }

  // Ends the piece, if there is one.
  bool close() {
    if (is_open) {
      if (left == 0) return false;
      *to++ = crc;
      --left;
    }
    crc = 0;
    is_open = false;
    open_nbytes = open_nbytes == 0 ? nbytes : open_nbytes;
    return true;
  }
};

class Picking {
 public:
  Picking(const OpenFile& file, int64_t offset, const Gather& gather, int64_t first_slot)
      : file_(file),
        offset_(offset),
        first_slot_(first_slot),
        width_(gather.row_nbytes),
        gap_(kGapNbytes / width_),
        room_(room_of_thread()),
        gather_(gather) {
    gather_.source = room_;
    gather_.source_stride = width_;
  }

  // Returns whether all rows could be read.
  bool run(const int64_t* rows, const int64_t* slots, int64_t count) {
    if (slots != nullptr || gather_.slot_stride != width_) return read_apart(rows, slots, count);
    return has_long_runs(rows, count) ? read_runs(rows, count) : read_short_runs(rows, count);
  }

  // The same for rows that ascend within stretches (first row, length), all of which are read, and get checksums: one for
  // each piece that cells of the file cut a stretch into.
  bool run_checked(const int64_t* rows, const int64_t* slots, int64_t count, const int64_t* stretches,
                   int64_t num_stretches, Sums sums) {
    bool is_direct = slots == nullptr && gather_.slot_stride == width_ && has_long_runs(rows, count);
    // One that comes twice has to be copied.
    for (int64_t i = 1; i < count && is_direct; ++i) is_direct = rows[i - 1] < rows[i];
    const int64_t most = kRoomNbytes / width_;
    int64_t done = 0;
    for (int64_t i = 0; i < num_stretches; ++i) {
      const int64_t first = stretches[2 * i];
      const int64_t length = stretches[2 * i + 1];
      int64_t start = 0;
      if (first < 0 || length < 1 || first > kMaxRows - length) return false;
      if (!place_of(first, &start) || !sums.open(start)) return false;
      if (is_direct) {
        if (!read_checked_runs(rows, count, first, first + length, &done, &sums)) return false;
      } else {
        for (int64_t begin = first; begin < first + length; begin += most) {
          const int64_t some = std::min(most, first + length - begin);
          if (!place_of(begin, &start) || !file_.read(room_, some * width_, start)) return false;
          if (!sums.add(room_, some * width_)) return false;
          done += pick(rows + done, slots == nullptr ? nullptr : slots + done, count - done, begin, some, done);
        }
      }
      if (!sums.close()) return false;
    }
    return done == count && sums.left == 0;
  }

 private:
  static int64_t num_runs(const int64_t* rows, int64_t count) {
    int64_t runs = 1;
    for (int64_t i = 1; i < count; ++i) runs += !follow(rows[i - 1], rows[i]);
    return runs;
  }

  bool has_long_runs(const int64_t* rows, int64_t count) const {
    return count * width_ >= num_runs(rows, count) * kRunNbytes;
  }

  // Rows `first` to `stop` of the file: runs of wanted rows right to their slots, all others to the room. As much at a time
  // as stays in the cache until it was summed up.
  bool read_checked_runs(const int64_t* rows, int64_t count, int64_t first, int64_t stop, int64_t* done, Sums* sums) {
    iovec ranges[kMaxRanges];
    const int64_t most = kRoomNbytes / width_;
    for (int64_t next = first; next < stop;) {
      const int64_t begin = next;
      const int64_t until = std::min(stop, begin + most);
      int used = 0;
      while (next < until && used < kMaxRanges) {
        const int64_t row = *done < count ? rows[*done] : stop;
        int64_t length = 1;
        if (row != next) {
          if (row < next) return false;
          length = std::min(row, until) - next;
          ranges[used++] = {room_ + (next - begin) * width_, static_cast<size_t>(length * width_)};
        } else {
          const int64_t slot = first_slot_ + *done;
          const int64_t group = slot / gather_.group_rows;
          const int64_t place = slot - group * gather_.group_rows;
          const int64_t limit = std::min({count - *done, gather_.group_rows - place, until - next});
          while (length < limit && rows[*done + length] == next + length) ++length;
          ranges[used++] = {gather_.out + group * gather_.group_stride + place * width_,
                            static_cast<size_t>(length * width_)};
          *done += length;
        }
        next += length;
      }
      int64_t start = 0;
      if (!place_of(begin, &start) || !file_.read(ranges, used, start)) return false;
      for (int i = 0; i < used; ++i) {
        if (!sums->add(static_cast<const uint8_t*>(ranges[i].iov_base), static_cast<int64_t>(ranges[i].iov_len)))
          return false;
      }
    }
    return true;
  }

  // Copies those rows that are in the room, which begins with row `begin`; returns how many they are.
  int64_t pick(const int64_t* rows, const int64_t* slots, int64_t count, int64_t begin, int64_t length, int64_t done) {
    int64_t near[kRowsAtOnce];
    int64_t picked = 0;
    gather_.source_rows = length;
    while (picked < count) {
      // Each number is read once, as everywhere here.
      int64_t found = 0;
      int64_t row = 0;
      while (found < kRowsAtOnce && picked + found < count &&
             (row = rows[picked + found] - begin, row >= 0 && row < length)) {
        near[found++] = row;
      }
      if (found == 0) break;
      if (slots == nullptr && gather_.slot_stride == width_) {
        copy_runs(near, found, first_slot_ + done + picked);
      } else if (gather_.run(near, slots ? slots + picked : nullptr, found, first_slot_ + done + picked).problem !=
                 Misplaced::kNone) {
        break;
      }
      picked += found;
    }
    return picked;
  }

  // Copies rows of the room, those that follow each other at once.
  void copy_runs(const int64_t* near, int64_t count, int64_t slot) const {
    for (int64_t done = 0; done < count;) {
      int64_t length = 1;
      while (done + length < count && near[done + length] == near[done] + length) ++length;
      copy(near[done], length, slot + done);
      done += length;
    }
  }

  // Each run of rows right to its slots, what lies between two of them to the room.
  bool read_runs(const int64_t* rows, int64_t count) {
    iovec ranges[kMaxRanges];
    for (int64_t done = 0; done < count;) {
      const int64_t first = rows[done];
      if (first < 0 || first > kMaxRows) return false;
      int64_t next = first;  // The row after the last one.
      int used = 0;
      // Each number is read once: the array belongs to Python, and another thread may write to it.
      for (int64_t row = first; used + 2 <= kMaxRanges; row = rows[done]) {
        if (row < next || row - next > gap_) break;
        if (row > next) ranges[used++] = {room_, static_cast<size_t>((row - next) * width_)};
        const int64_t slot = first_slot_ + done;
        const int64_t group = slot / gather_.group_rows;
        const int64_t place = slot - group * gather_.group_rows;
        const int64_t most = std::min(count - done, gather_.group_rows - place);
        int64_t length = 1;
        while (length < most && follow(rows[done + length - 1], rows[done + length])) ++length;
        ranges[used++] = {gather_.out + group * gather_.group_stride + place * width_,
                          static_cast<size_t>(length * width_)};
        done += length;
        next = row + length;
        if (done == count) break;
      }
      int64_t start = 0;
      if (!place_of(first, &start) || !file_.read(ranges, used, start)) return false;
    }
    return true;
  }

  // By way of the room: rows that follow each other are one copy.
  bool read_short_runs(const int64_t* rows, int64_t count) {
    struct Run {
      int64_t begin;
      int64_t length;
    } runs[kRunsAtOnce];
    const int64_t most = kRoomNbytes / width_;
    for (int64_t done = 0; done < count;) {
      const int64_t first = rows[done];
      if (first < 0 || first > kMaxRows) return false;
      int64_t next = first;
      int64_t stop = first;  // Of all rows.
      int64_t found = done;
      int64_t used = 0;
      for (int64_t row = first; used < kRunsAtOnce; row = rows[found]) {
        // A row may come several times; one that lies before is another read.
        if (row < next - 1 || row - next > gap_ || row - first >= most || row < first) break;
        const int64_t limit = std::min(count - found, first + most - row);
        int64_t length = 1;
        while (length < limit && follow(rows[found + length - 1], rows[found + length])) ++length;
        runs[used++] = {row - first, length};
        found += length;
        next = row + length;
        stop = std::max(stop, next);
        if (found == count) break;
      }
      int64_t start = 0;
      if (!place_of(first, &start) || !file_.read(room_, (stop - first) * width_, start)) return false;
      for (int64_t i = 0; i < used; ++i) {
        copy(runs[i].begin, runs[i].length, first_slot_ + done);
        done += runs[i].length;
      }
    }
    return true;
  }

  // Copies rows of the room to the slots from `slot` on.
  void copy(int64_t begin, int64_t length, int64_t slot) const {
    while (length > 0) {
      const int64_t group = slot / gather_.group_rows;
      const int64_t place = slot - group * gather_.group_rows;
      const int64_t some = std::min(length, gather_.group_rows - place);
      std::memcpy(gather_.out + group * gather_.group_stride + place * width_, room_ + begin * width_,
                  static_cast<size_t>(some * width_));
      begin += some;
      slot += some;
      length -= some;
    }
  }

  // By way of the room, each to a slot of its own.
  bool read_apart(const int64_t* rows, const int64_t* slots, int64_t count) {
    const int64_t most = kRoomNbytes / width_;
    int64_t near[kRowsAtOnce];
    for (int64_t done = 0; done < count;) {
      const int64_t first = rows[done];
      if (first < 0 || first > kMaxRows) return false;
      int64_t last = first;
      int64_t found = 0;
      for (; found < kRowsAtOnce && done + found < count; ++found) {
        const int64_t row = found == 0 ? first : rows[done + found];
        if (found > 0 && (row < last || row - last > gap_ + 1 || row - first >= most)) break;
        near[found] = row - first;
        last = row;
      }
      int64_t start = 0;
      gather_.source_rows = last - first + 1;
      if (!place_of(first, &start) || !file_.read(room_, gather_.source_rows * width_, start)) return false;
      if (gather_.run(near, slots ? slots + done : nullptr, found, first_slot_ + done).problem != Misplaced::kNone)
        return false;
      done += found;
    }
    return true;
  }

  bool place_of(int64_t row, int64_t* start) const {
    return !__builtin_mul_overflow(row, width_, start) && !__builtin_add_overflow(*start, offset_, start);
  }

  const OpenFile& file_;
  const int64_t offset_;
  const int64_t first_slot_;  // Where no slots are given.
  const int64_t width_;
  const int64_t gap_;  // Rows between two others.
  uint8_t* const room_;
  Gather gather_;
};

bool read_rows(int fd, int64_t offset, nb::handle rows_object, nb::handle out_object, nb::handle at_object,
               int64_t first_slot, nb::handle stretches_object, int64_t cells_start, int64_t cell_nbytes,
               nb::handle sums_object) {
  const Buffer rows(rows_object, "rows", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 3, Access::kWrite);
  const int64_t count = rows.size(0);
  const int64_t width = out.size(2);
  if (offset < 0) raise_value_error("offset must be at least 0, got " + std::to_string(offset) + ".");
  if (width < 1 || width > kRoomNbytes) {
    raise_value_error("rows must have 1 to " + std::to_string(kRoomNbytes) + " bytes, got " + std::to_string(width) +
                      ".");
  }
  check_slots(out, width);
  const OpenFile file(fd);
  if (!file.is_open()) return false;
  const Gather gather{nullptr,      0, 0, width, out.data<uint8_t>(), out.size(0), out.size(1), out.stride(0),
                      out.stride(1)};
  std::optional<Buffer> at;
  if (at_object.is_none()) {
    const int64_t slots = out.size(0) * out.size(1);
    if (first_slot < 0 || first_slot > slots || count > slots - first_slot) {
      raise_value_error("out must have a slot for each row: got " + std::to_string(count) + " rows for slots " +
                        std::to_string(first_slot) + " to " + std::to_string(slots) + ".");
    }
  } else {
    at.emplace(at_object, "at", Element::kInt64, 1, Access::kRead);
    at->require_size(0, count, "rows");
    first_slot = 0;
  }
  const int64_t* const slots = at ? at->data<const int64_t>() : nullptr;
  if (stretches_object.is_none()) {
    nb::gil_scoped_release release;
    return Picking(file, offset, gather, first_slot).run(rows.data<const int64_t>(), slots, count);
  }
  const Buffer stretches(stretches_object, "stretches", Element::kInt64, 2, Access::kRead);
  const Buffer sums(sums_object, "sums", Element::kUint32, 1, Access::kWrite);
  stretches.require_size(1, 2, "a first row and a length");
  if (cells_start < -kMaxRows || cell_nbytes < 1 || cell_nbytes > kMaxRows) {
    raise_value_error("cells must have a byte or more, and not start before -2**62.");
  }
  nb::gil_scoped_release release;
  return Picking(file, offset, gather, first_slot)
      .run_checked(rows.data<const int64_t>(), slots, count, stretches.data<const int64_t>(), stretches.size(0),
                   Sums{cells_start, cell_nbytes, sums.data<uint32_t>(), sums.size(0)});
}

}  // namespace

void bind_read_rows(nb::module_& m) {
  m.def("read_rows", &read_rows, nb::arg("fd"), nb::arg("offset"), nb::arg("rows"), nb::arg("out"),
        nb::arg("at") = nb::none(), nb::arg("first_slot") = 0, nb::kw_only(), nb::arg("stretches") = nb::none(),
        nb::arg("cells_start") = 0, nb::arg("cell_nbytes") = 0, nb::arg("sums") = nb::none(),
        "Read rows of one size from a file to slots of out; return whether all could be read.");
}

}  // namespace penstock
