// Plain reads of an open file, for kernels that use what they read at once.
#pragma once

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

namespace penstock {

// What is read and used at once: it stays in a core's cache in between.
constexpr int64_t kRoomNbytes = 1 << 18;

// The room of this thread: made once, as fresh memory costs as much as reading does.
inline uint8_t* room_of_thread() {
  thread_local const std::unique_ptr<uint8_t[]> room(new uint8_t[kRoomNbytes]);
  return room.get();
}

// A descriptor of its own for an open file: the file may be closed elsewhere meanwhile.
class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fcntl(fd, F_DUPFD_CLOEXEC, 0)) {}
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_open() const { return fd_ >= 0; }

  // Returns whether all bytes could be read.
  bool read(uint8_t* to, int64_t nbytes, int64_t offset) const {
    while (nbytes > 0) {
      const ssize_t got = pread(fd_, to, static_cast<size_t>(nbytes), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      to += got;
      offset += got;
      nbytes -= got;
    }
    return true;
  }

  // The same, for ranges of memory that bytes which follow each other in the file belong to.
  bool read(const iovec* ranges, int count, int64_t offset) const {
    ssize_t got;
    do {
      got = preadv(fd_, ranges, count, static_cast<off_t>(offset));
    } while (got < 0 && errno == EINTR);
    if (got < 0) return false;
    // Some file systems give less at once.
    auto have = static_cast<size_t>(got);
    for (int i = 0; i < count; ++i) {
      const size_t mine = std::min(have, ranges[i].iov_len);
      have -= mine;
      const size_t left = ranges[i].iov_len - mine;
      const auto at = static_cast<int64_t>(mine);
      if (left > 0 && !read(static_cast<uint8_t*>(ranges[i].iov_base) + at, static_cast<int64_t>(left), offset + at)) {
        return false;
      }
      offset += static_cast<int64_t>(ranges[i].iov_len);
    }
    return true;
  }

 private:
  const int fd_;
};

}  // namespace penstock
