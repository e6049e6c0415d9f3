// Preloaded by tests: a disk on which the n-th call that changes it fails, alone or with all that follow.
//
// Calls count if they are about a path under the folder that `arm` names, or about a file that was opened there.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

static std::atomic<long> calls{0};
static long fails_at = 0;      // The number of the call that fails, from 1 on; 0: none does.
static int code = 0;           // Its errno; negative: the process is killed instead.
static bool stays = false;     // Whether all calls after it fail, too.
static char folder[PATH_MAX];  // Nothing elsewhere counts.

extern "C" void arm(const char* under, long at, int number, int from_then_on) {
  snprintf(folder, sizeof folder, "%s", under);
  calls = 0;
  fails_at = at;
  code = number;
  stays = from_then_on != 0;
}

extern "C" long count_of_calls() { return calls; }

static bool is_under(const char* path) { return folder[0] && strncmp(path, folder, strlen(folder)) == 0; }

static bool is_under(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return false;
  path[size] = 0;
  return is_under(path);
}

static bool fails(bool counts) {
  if (!counts) return false;
  const long number = ++calls;
  if (!fails_at || number < fails_at || (number > fails_at && !stays)) return false;
  if (code < 0) _exit(99);
  errno = code;
  return true;
}

#define REAL(name) reinterpret_cast<decltype(&name)>(dlsym(RTLD_NEXT, #name))

static bool is_made(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

#define OPEN(name)                                                                 \
  extern "C" int name(const char* path, int flags, ...) {                          \
    static auto* real = REAL(name);                                                \
    va_list list;                                                                  \
    va_start(list, flags);                                                         \
    const mode_t mode = is_made(flags) ? va_arg(list, mode_t) : 0;                 \
    va_end(list);                                                                  \
    return fails(is_made(flags) && is_under(path)) ? -1 : real(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)

extern "C" ssize_t write(int fd, const void* from, size_t size) {
  static auto* real = REAL(write);
  return fails(is_under(fd)) ? -1 : real(fd, from, size);
}

extern "C" ssize_t pwrite(int fd, const void* from, size_t size, off_t at) {
  static auto* real = REAL(pwrite);
  return fails(is_under(fd)) ? -1 : real(fd, from, size, at);
}

extern "C" ssize_t pwrite64(int fd, const void* from, size_t size, off64_t at) {
  static auto* real = REAL(pwrite64);
  return fails(is_under(fd)) ? -1 : real(fd, from, size, at);
}

// Nothing is really brought to the disk: that would only take time.
#define OF_FD(name) \
  extern "C" int name(int fd) { return fails(is_under(fd)) ? -1 : 0; }
OF_FD(fsync)
OF_FD(fdatasync)

extern "C" int ftruncate(int fd, off_t size) noexcept {
  static auto* real = REAL(ftruncate);
  return fails(is_under(fd)) ? -1 : real(fd, size);
}

extern "C" int ftruncate64(int fd, off64_t size) noexcept {
  static auto* real = REAL(ftruncate64);
  return fails(is_under(fd)) ? -1 : real(fd, size);
}

#define OF_PATH(name)                               \
  extern "C" int name(const char* path) noexcept {  \
    static auto* real = REAL(name);                 \
    return fails(is_under(path)) ? -1 : real(path); \
  }
OF_PATH(unlink)
OF_PATH(rmdir)

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  static auto* real = REAL(mkdir);
  return fails(is_under(path)) ? -1 : real(path, mode);
}

#define OF_PATHS(name)                                                \
  extern "C" int name(const char* path, const char* other) noexcept { \
    static auto* real = REAL(name);                                   \
    return fails(is_under(other)) ? -1 : real(path, other);           \
  }
OF_PATHS(rename)
OF_PATHS(link)

extern "C" int renameat2(int from, const char* path, int to, const char* other, unsigned flags) noexcept {
  static auto* real = REAL(renameat2);
  return fails(is_under(other)) ? -1 : real(from, path, to, other, flags);
}
