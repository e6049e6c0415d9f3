// Many ranges of one file into memory, past the page cache where asked: neighbours together, several reads at once.
//
// Kernel AIO rather than threads: a random read of 64 KB keeps the disk busy for a third of the time that a
// thread waits for it. Rather than io_uring: containers often forbid that one.
#include <nanobind/nanobind.h>
#include <unistd.h>

#include "system.h"
#ifndef PENSTOCK_PORTABLE
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "buffer.h"
#include "crc32c.h"

namespace penstock {
namespace {

constexpr int64_t kPage = 4096;           // What direct reads must be aligned to on every common disk.
constexpr int64_t kGap = 64 << 10;        // Reading over a gap of this size costs less than a second trip to the disk.
constexpr int64_t kDirectMin = 32 << 10;  // A smaller direct read pays a trip for what readahead already has.
constexpr int64_t kScattered = 4 << 10;   // Parts that are farther apart than this are read one by one from the cache.
constexpr int64_t kSlot = 128 << 10;      // One read at most, so that there are several under way.

int64_t round_down(int64_t value) { return value & ~(kPage - 1); }
int64_t round_up(int64_t value) { return round_down(value + kPage - 1); }
bool is_refusal(int error) { return error == EINVAL || error == ENOTSUP || error == EFAULT; }

// Cells of the file, each `nbytes` long, from `start` on. Parts are cut where cells begin, and each piece has a
// checksum. Without cells, `nbytes` is 0.
struct Cells {
  int64_t start;
  int64_t nbytes;

  int64_t cell_of(int64_t offset) const { return (offset - start) / nbytes; }
};

// Bytes of the file that belong somewhere.
struct Part {
  int64_t offset;
  int64_t size;
  uint8_t* data;
  uint32_t* sums;  // Of its pieces.
  int64_t stop() const { return offset + size; }
};

// Parts [first, last) that lie near together, all within [start, stop) of the file.
struct Group {
  int64_t start;
  int64_t stop;
  size_t first;
  size_t last;
};

// One direct read, of whole pages, for the parts from `first` on that it overlaps.
struct Request {
  int64_t start;
  int64_t stop;
  size_t group;
  size_t first;
};

struct Failure {
  bool is_set = false;
  int64_t offset = 0;
  int64_t wanted = 0;
  int64_t got = 0;
  int error = 0;
};

#ifndef PENSTOCK_PORTABLE
// The kernel's queue of this thread, made when first needed. One that was inherited by a fork belongs to the parent.
class Queue {
 public:
  ~Queue() {
    if (context_ != 0 && owner_ == getpid()) syscall(SYS_io_destroy, context_);
  }
  // Whether there is one; not where the kernel has none to give.
  bool open(unsigned depth) {
    if (owner_ == getpid()) return context_ != 0;
    context_ = 0;
    owner_ = getpid();
    return syscall(SYS_io_setup, depth, &context_) == 0;
  }
  // How many of the requests were taken.
  size_t submit(std::vector<iocb*>& requests) {
    long sent;
    do {
      sent = syscall(SYS_io_submit, context_, static_cast<long>(requests.size()), requests.data());
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }
  // How many of the events are there: one at least.
  size_t wait(std::vector<io_event>& events) {
    long found;
    do {
      found = syscall(SYS_io_getevents, context_, 1L, static_cast<long>(events.size()), events.data(), nullptr);
      if (found < 0 && errno != EINTR) throw std::runtime_error("io_getevents failed.");
    } while (found < 1);
    return static_cast<size_t>(found);
  }

 private:
  aio_context_t context_ = 0;
  pid_t owner_ = 0;
};
thread_local Queue queue;
#endif

class Job {
 public:
  Job(int fd, int direct_fd, uint8_t* bounce, int64_t bounce_nbytes, bool drops, Cells cells)
      : fd_(fd),
        direct_fd_(kIsPortable ? -1 : direct_fd),
        bounce_(bounce),
        bounce_nbytes_(bounce_nbytes),
        drops_(drops),
        cells_(cells) {}

  void run(std::vector<Part> parts) {
    parts_ = std::move(parts);
    std::stable_sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.offset < b.offset; });
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      if (part.size == 0) continue;
      if (groups_.empty() || part.offset - groups_.back().stop > kGap)
        groups_.push_back({part.offset, part.offset, i, i});
      groups_.back().stop = std::max(groups_.back().stop, part.stop());
      groups_.back().last = i + 1;
    }
    if (direct_fd_ >= 0) {
      read_direct();
      if (direct_fd_ < 0) forget_sums();  // All is read again.
    }
    for (const Group& group : groups_) {
      if (!is_read_directly(group) && !failure.is_set) read_buffered(group);
    }
  }

  Failure failure;
  bool is_direct() const { return direct_fd_ >= 0; }

 private:
  bool is_read_directly(const Group& group) const { return direct_fd_ >= 0 && group.stop - group.start >= kDirectMin; }

  std::vector<Request> requests() const {
    std::vector<Request> made;
    for (size_t number = 0; number < groups_.size(); ++number) {
      const Group& group = groups_[number];
      if (!is_read_directly(group)) continue;
      size_t first = group.first;
      for (int64_t start = round_down(group.start); start < group.stop; start += kSlot) {
        while (parts_[first].stop() <= start) ++first;
        made.push_back({start, std::min(start + kSlot, round_up(group.stop)), number, first});
      }
    }
    return made;
  }

  // Where direct reads turn out not to be possible, nothing is left direct, and all is read again through the cache.
  void read_direct() {
    const std::vector<Request> all = requests();
#ifndef PENSTOCK_PORTABLE
    const auto depth = static_cast<size_t>(bounce_nbytes_ / kSlot);
    if (all.size() > 1 && depth > 1 && queue.open(static_cast<unsigned>(depth))) {
      read_queued(all, depth);
      return;
    }
#endif
    for (const Request& request : all) {
      if (!read_plainly(request, bounce_)) return;
    }
  }

#ifndef PENSTOCK_PORTABLE
  void read_queued(const std::vector<Request>& all, size_t depth) {
    std::vector<iocb> controls(depth);
    std::vector<size_t> owners(depth);
    std::vector<size_t> idle;
    for (size_t slot = depth; slot > 0; --slot) idle.push_back(slot - 1);
    std::vector<io_event> events(std::max<size_t>(1, depth / 4));  // Not all at once: the disk must not run dry.
    std::vector<iocb*> batch;
    size_t next = 0;
    size_t under_way = 0;
    bool goes_on = true;
    // After a failure, too, all that was submitted must come back: the kernel writes into `bounce_`.
    while (under_way > 0 || (goes_on && next < all.size())) {
      batch.clear();
      while (goes_on && !idle.empty() && next < all.size()) {
        const size_t slot = idle.back();
        idle.pop_back();
        owners[slot] = next;
        const Request& request = all[next++];
        iocb& control = controls[slot];
        std::memset(&control, 0, sizeof(control));
        control.aio_data = slot;
        control.aio_lio_opcode = IOCB_CMD_PREAD;
        control.aio_fildes = static_cast<uint32_t>(direct_fd_);
        control.aio_buf = reinterpret_cast<uintptr_t>(memory(slot));
        control.aio_nbytes = static_cast<uint64_t>(request.stop - request.start);
        control.aio_offset = request.start;
        batch.push_back(&control);
      }
      const size_t taken = batch.empty() ? 0 : queue.submit(batch);
      under_way += taken;
      for (size_t i = taken; i < batch.size(); ++i) {
        // No room in the queue, or none of its kind for this file: a plain read does as well, and says why if not.
        const auto slot = static_cast<size_t>(batch[i]->aio_data);
        if (goes_on) goes_on = read_plainly(all[owners[slot]], memory(slot));
        idle.push_back(slot);
      }
      if (under_way == 0) continue;
      const size_t count = queue.wait(events);
      for (size_t i = 0; i < count; ++i) {
        const auto slot = static_cast<size_t>(events[i].data);
        if (goes_on) goes_on = settle(all[owners[slot]], memory(slot), events[i].res);
        idle.push_back(slot);
      }
      under_way -= count;
    }
  }
#endif

  bool read_plainly(const Request& request, uint8_t* to) {
    return settle(request, to, pread_once(direct_fd_, to, request.stop - request.start, request.start));
  }

  uint8_t* memory(size_t slot) const { return bounce_ + static_cast<int64_t>(slot) * kSlot; }

  // Copies what a direct read gave to where it belongs; `got` is a count of bytes, or an error below 0.
  bool settle(const Request& request, const uint8_t* data, int64_t got) {
    const Group& group = groups_[request.group];
    const int64_t stop = std::min(request.stop, group.stop);
    if (got < 0 && is_refusal(static_cast<int>(-got))) {
      direct_fd_ = -1;
      return false;
    }
    if (got < 0) {
      fail(request.start, stop - request.start, 0, static_cast<int>(-got));
      return false;
    }
    const int64_t have = std::min(stop, request.start + got);
    copy(group, request, have, data);
    if (have == stop) return true;
    // The end of the file, or a file system that gives less at once.
    for (size_t i = request.first; i < group.last && parts_[i].offset < stop; ++i) {
      const Part& part = parts_[i];
      const int64_t from = std::max({part.offset, have, request.start});
      const int64_t until = std::min(part.stop(), stop);
      if (from < until && !fill_part(part, from, until)) return false;
    }
    return true;
  }

  void copy(const Group& group, const Request& request, int64_t have, const uint8_t* data) const {
    for (size_t i = request.first; i < group.last && parts_[i].offset < have; ++i) {
      const Part& part = parts_[i];
      const int64_t from = std::max(part.offset, request.start);
      const int64_t until = std::min(part.stop(), have);
      if (from < until) {
        std::memcpy(part.data + (from - part.offset), data + (from - request.start), static_cast<size_t>(until - from));
        add_sums(part, from, until);
      }
    }
  }

  // Takes in bytes that have just come, in whatever order: the processor still has them at hand, and the disk goes on
  // reading meanwhile.
  void add_sums(const Part& part, int64_t from, int64_t until) const {
    if (cells_.nbytes == 0) return;
    const int64_t first = cells_.cell_of(part.offset);
    while (from < until) {
      const int64_t cell = cells_.cell_of(from);
      const int64_t piece_stop = std::min(cells_.start + (cell + 1) * cells_.nbytes, part.stop());
      const int64_t stop = std::min(piece_stop, until);
      const uint32_t crc = crc32c(part.data + (from - part.offset), static_cast<size_t>(stop - from));
      part.sums[cell - first] ^= moved_crc32c(crc, static_cast<uint64_t>(piece_stop - stop));
      from = stop;
    }
  }

  void forget_sums() const {
    if (cells_.nbytes == 0) return;
    for (const Part& part : parts_) {
      if (part.size > 0) std::fill_n(part.sums, cells_.cell_of(part.stop() - 1) - cells_.cell_of(part.offset) + 1, 0u);
    }
  }

  void read_buffered(const Group& group) {
    const auto count = static_cast<int64_t>(group.last - group.first);
    if (group.stop - group.start >= count * kScattered) {
      for (size_t i = group.first; i < group.last; ++i) {
        if (!fill_part(parts_[i], parts_[i].offset, parts_[i].stop())) return;
      }
    } else {
      // Many small ones: a call to the system for each would cost more than reading all that lies between them.
      size_t first = group.first;
      for (int64_t start = group.start; start < group.stop; start += bounce_nbytes_) {
        while (parts_[first].stop() <= start) ++first;
        const Request request{start, std::min(start + bounce_nbytes_, group.stop), 0, first};
        if (!fill(bounce_, request.stop - start, start)) return;
        copy(group, request, request.stop, bounce_);
      }
    }
    if (drops_) drop_from_page_cache(fd_, group.start, group.stop - group.start);
  }

  // Reads some bytes of a part through the page cache; with cells, few enough at once that they stay at hand.
  bool fill_part(const Part& part, int64_t from, int64_t until) {
    const int64_t most = cells_.nbytes == 0 ? until - from : kSlot;
    for (int64_t start = from; start < until; start += most) {
      const int64_t stop = std::min(start + most, until);
      if (!fill(part.data + (start - part.offset), stop - start, start)) return false;
      add_sums(part, start, stop);
    }
    return true;
  }

  bool fill(uint8_t* to, int64_t size, int64_t offset) {
    int64_t done = 0;
    while (done < size) {
      const int64_t got = pread_once(fd_, to + done, size - done, offset + done);
      if (got > 0) {
        done += got;
        continue;
      }
      fail(offset, size, done, static_cast<int>(-got));
      return false;
    }
    return true;
  }

  void fail(int64_t offset, int64_t wanted, int64_t got, int error) {
    if (!failure.is_set) failure = {true, offset, wanted, got, error};
  }

  static int64_t pread_once(int fd, uint8_t* to, int64_t size, int64_t offset) {
    ssize_t got;
    do {
      got = pread(fd, to, static_cast<size_t>(size), offset);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
  }

  int fd_;
  int direct_fd_;
  uint8_t* bounce_;
  int64_t bounce_nbytes_;
  bool drops_;
  Cells cells_;
  std::vector<Part> parts_;
  std::vector<Group> groups_;
};

nb::object read_ranges(int fd, int direct_fd, nb::list offsets, nb::list buffers, nb::handle bounce_object, bool drop,
                       int64_t cells_start, int64_t cell_nbytes, nb::handle sums_object) {
  const Buffer bounce(bounce_object, "bounce", Element::kUint8, 1, Access::kWrite);
  const size_t count = nb::len(offsets);
  if (nb::len(buffers) != count) raise_value_error("offsets and buffers must be as many.");
  if (bounce.size(0) < kSlot || reinterpret_cast<uintptr_t>(bounce.data<uint8_t>()) % kPage != 0) {
    raise_value_error("bounce must be at least 128 KB, and start on a page.");
  }
  const Cells cells{cells_start, sums_object.is_none() ? 0 : cell_nbytes};
  std::unique_ptr<Buffer> sums;
  if (!sums_object.is_none()) {
    if (cell_nbytes < 1) raise_value_error("cell_nbytes must be at least 1.");
    sums = std::make_unique<Buffer>(sums_object, "sums", Element::kUint32, 1, Access::kWrite);
  }
  std::vector<std::unique_ptr<Buffer>> held;
  std::vector<Part> parts;
  int64_t num_pieces = 0;
  for (size_t i = 0; i < count; ++i) {
    held.push_back(std::make_unique<Buffer>(buffers[i], "buffers", Element::kUint8, 1, Access::kWrite));
    const auto offset = nb::cast<int64_t>(offsets[i]);
    if (offset < 0) raise_value_error("offsets must be at least 0.");
    if (may_share_memory(*held.back(), bounce)) raise_value_error("buffers must share no memory with bounce.");
    Part part{offset, held.back()->size(0), held.back()->data<uint8_t>(), nullptr};
    if (sums && part.size > 0) {
      if (offset < cells_start) raise_value_error("offsets must be in cells: at least cells_start.");
      part.sums = sums->data<uint32_t>() + num_pieces;
      num_pieces += cells.cell_of(part.stop() - 1) - cells.cell_of(offset) + 1;
    }
    parts.push_back(part);
  }
  if (sums) {
    sums->require_size(0, num_pieces, "all pieces");
    std::fill_n(sums->data<uint32_t>(), num_pieces, 0u);
  }
  Job job(fd, direct_fd, bounce.data<uint8_t>(), bounce.size(0), drop, cells);
  {
    nb::gil_scoped_release release;
    job.run(std::move(parts));
  }
  const Failure& failure = job.failure;
  nb::object problem = nb::none();
  if (failure.is_set) problem = nb::make_tuple(failure.offset, failure.wanted, failure.got, failure.error);
  return nb::make_tuple(job.is_direct(), problem);
}

}  // namespace

void bind_read(nb::module_& m) {
  m.def(
      "read_ranges", &read_ranges, nb::arg("fd"), nb::arg("direct_fd"), nb::arg("offsets"), nb::arg("buffers"),
      nb::arg("bounce"), nb::arg("drop"), nb::kw_only(), nb::arg("cells_start") = 0, nb::arg("cell_nbytes") = 0,
      nb::arg("sums") = nb::none(),
      "Fill each buffer with the bytes of a file from its offset on; return whether direct reads work, and a failure.");
}

}  // namespace penstock
