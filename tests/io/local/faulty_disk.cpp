// Preloaded by tests: a disk that gives few bytes at a time, fails, or knows no direct reads. FAULT says which.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long limit_of(const char* name) {
  const char* fault = getenv("FAULT");
  const size_t length = strlen(name);
  return fault && strncmp(fault, name, length) == 0 && fault[length] == ':' ? atol(fault + length + 1) : 0;
}

static bool is(const char* name) {
  const char* fault = getenv("FAULT");
  return fault && strcmp(fault, name) == 0;
}

static bool is_direct(int fd) { return (fcntl(fd, F_GETFL) & O_DIRECT) != 0; }

extern "C" ssize_t pread(int fd, void* to, size_t size, off_t offset) {
  static auto* real = reinterpret_cast<ssize_t (*)(int, void*, size_t, off_t)>(dlsym(RTLD_NEXT, "pread"));
  if (is("no-direct") && is_direct(fd)) return errno = EINVAL, -1;
  if (is("broken")) return errno = EIO, -1;
  const long limit = limit_of("short");
  const ssize_t got = real(fd, to, size, offset);
  return limit > 0 && got > limit ? limit : got;
}

extern "C" ssize_t pread64(int fd, void* to, size_t size, off_t offset) { return pread(fd, to, size, offset); }

extern "C" long syscall(long number, ...) {
  static auto* real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& value : a) value = va_arg(list, long);
  va_end(list);
  if (number == SYS_io_setup && (is("no-queue") || limit_of("short") > 0)) return errno = ENOSYS, -1;
  if (number == SYS_io_submit && is("full-queue")) return errno = EAGAIN, -1;
  const long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  auto* events = reinterpret_cast<io_event*>(a[3]);
  for (long i = 0; number == SYS_io_getevents && i < result; ++i) {
    const long limit = limit_of("short-queue");
    if (limit > 0 && events[i].res > limit) events[i].res = limit;
    if (is("no-direct")) events[i].res = -EINVAL;
    if (is("broken")) events[i].res = -EIO;
  }
  return result;
}
