// Plain reads of an open file, for kernels that use what they read at once.
#pragma once

#include <fcntl.h>
#include <unistd.h>

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

 private:
  const int fd_;
};

}  // namespace penstock
