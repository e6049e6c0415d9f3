// What Linux has and other systems lack, and what stands in for it.
//
// A portable build (cmake -DPENSTOCK_PORTABLE=ON) does without it on Linux, too, so that the tests there run what
// other systems get. Python asks for `_native.is_portable`.
#pragma once

#if !defined(__linux__) && !defined(PENSTOCK_PORTABLE)
#define PENSTOCK_PORTABLE
#endif

#include <fcntl.h>
#include <locale.h>
#ifdef __APPLE__
#include <malloc/malloc.h>
#include <xlocale.h>
#else
#include <malloc.h>
#endif

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace penstock {

#ifdef PENSTOCK_PORTABLE
constexpr bool kIsPortable = true;
#else
constexpr bool kIsPortable = false;
#endif

// How many bytes a piece of memory from malloc really has.
inline size_t usable_nbytes(void* memory) {
#ifdef __APPLE__
  return malloc_size(memory);
#else
  return malloc_usable_size(memory);
#endif
}

// The last of these bytes that is `byte`; nullptr if none is.
inline const uint8_t* find_last(const uint8_t* data, uint8_t byte, size_t nbytes) {
#ifdef PENSTOCK_PORTABLE
  while (nbytes > 0) {
    if (data[--nbytes] == byte) return data + nbytes;
  }
  return nullptr;
#else
  return static_cast<const uint8_t*>(memrchr(data, byte, nbytes));
#endif
}

// The float64 that is nearest to a number, whatever the locale; false if there is none. A byte that belongs to no number
// must stand behind it.
inline bool parse_float(const char* start, [[maybe_unused]] const char* stop, double& value) {
#if defined(__cpp_lib_to_chars) && !defined(PENSTOCK_PORTABLE)
  return std::from_chars(start, stop, value).ec == std::errc();
#else
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  errno = 0;
  value = strtod_l(start, nullptr, plain);
  return errno == 0;
#endif
}

// Tells the system that a part of a file need not stay in its page cache.
inline void drop_from_page_cache([[maybe_unused]] int fd, [[maybe_unused]] int64_t start,
                                 [[maybe_unused]] int64_t nbytes) {
#ifndef PENSTOCK_PORTABLE
  posix_fadvise(fd, start, nbytes, POSIX_FADV_DONTNEED);
#endif
}

}  // namespace penstock
