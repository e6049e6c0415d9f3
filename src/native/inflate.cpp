// Deflate (RFC 1951). As in libdeflate, there is a bit buffer of 64 bits that is filled by one load, and a table a
// code, whose entries hold all that is needed of a symbol; long codes have a second table. Most of the stream is
// decoded by a loop that needs no bounds, as there is room for the longest match and input for the longest symbol;
// the last bytes by one that is careful.
#include "inflate.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace penstock {
namespace {

constexpr int kMaxBits = 15;
constexpr int kLengthBits = 11;  // Of the first table of literals and lengths.
constexpr int kDistanceBits = 9;
constexpr int kOrderBits = 7;
constexpr int kNumLengths = 288;
constexpr int kNumDistances = 32;
constexpr int kNumOrders = 19;
// Enough for any code: a second table of 2^k entries has at least k + 1 symbols, and k is 15 less the first table's
// bits.
constexpr int kLengthEntries = (1 << kLengthBits) + kNumLengths / 5 * 16 + 16;
constexpr int kDistanceEntries = (1 << kDistanceBits) + kNumDistances / 7 * 64 + 64;

// An entry: bits 0 to 4 are how many bits to take; 8 to 12 how many extra bits follow (of a second table: its bits);
// 16 to 30 the literal, the base of a length or distance, or where a second table begins.
constexpr uint32_t kLiteral = 1u << 31;
constexpr uint32_t kSpecial = 1u << 15;  // With one of the next two, or with none: no symbol.
constexpr uint32_t kSecond = 1u << 14;
constexpr uint32_t kEnd = 1u << 13;

constexpr uint16_t kLengthBase[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                      31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr uint8_t kLengthExtra[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                      2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr uint16_t kDistanceBase[30] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                        33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                        1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
constexpr uint8_t kDistanceExtra[30] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                        6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
constexpr uint8_t kOrder[kNumOrders] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

enum class Kind { kLengths, kDistances, kOrders };

uint32_t entry_of(Kind kind, int symbol) {
  const auto value = static_cast<uint32_t>(symbol);
  switch (kind) {
    case Kind::kOrders:
      return value << 16;
    case Kind::kLengths:
      if (symbol < 256) return kLiteral | value << 16;
      if (symbol == 256) return kSpecial | kEnd;
      if (symbol > 285) return kSpecial;
      return static_cast<uint32_t>(kLengthBase[symbol - 257]) << 16 | static_cast<uint32_t>(kLengthExtra[symbol - 257])
                                                                          << 8;
    case Kind::kDistances:
      if (symbol > 29) return kSpecial;
      return static_cast<uint32_t>(kDistanceBase[symbol]) << 16 | static_cast<uint32_t>(kDistanceExtra[symbol]) << 8;
  }
  return kSpecial;
}

uint32_t reversed(uint32_t code, int bits) {
  uint32_t found = 0;
  for (int bit = 0; bit < bits; ++bit) found |= (code >> bit & 1) << (bits - 1 - bit);
  return found;
}

// Fills a table from the lengths of the codes of its symbols; false if there is no such code.
bool build(Kind kind, const uint8_t* lengths, int num_symbols, int table_bits, uint32_t* table, int room) {
  int counts[kMaxBits + 1] = {};
  for (int symbol = 0; symbol < num_symbols; ++symbol) ++counts[lengths[symbol]];
  int longest = kMaxBits;
  while (longest > 0 && counts[longest] == 0) --longest;
  int left = 1;
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    left = left * 2 - counts[bits];
    if (left < 0) return false;  // More codes than there can be.
  }
  // As in zlib: codes that leave some bits without a meaning are refused, but for none at all, or a single one.
  if (longest > 0 && left > 0 && (kind == Kind::kOrders || longest != 1)) return false;
  std::fill(table, table + (1 << table_bits), kSpecial | 1);
  uint32_t next[kMaxBits + 2] = {};
  for (int bits = 1; bits <= kMaxBits; ++bits) {
    next[bits + 1] = (next[bits] + static_cast<uint32_t>(counts[bits])) << 1;
  }
  // Symbols in the order of their codes, so that all codes of a second table follow each other.
  int starts[kMaxBits + 2] = {};
  for (int bits = 1; bits <= kMaxBits; ++bits) starts[bits + 1] = starts[bits] + counts[bits];
  uint16_t sorted[kNumLengths];
  for (int symbol = 0; symbol < num_symbols; ++symbol) {
    if (lengths[symbol] != 0) sorted[starts[lengths[symbol]]++] = static_cast<uint16_t>(symbol);
  }
  int used = 1 << table_bits;
  uint32_t prefix = ~0u;
  int second_bits = 0;
  int second = 0;
  int at = 0;
  for (int bits = 1; bits <= longest; ++bits) {
    for (int number = 0; number < counts[bits]; ++number, ++at) {
      const uint32_t code = reversed(next[bits]++, bits);
      const uint32_t entry = entry_of(kind, sorted[at]);
      if (bits <= table_bits) {
        for (uint32_t slot = code; slot < 1u << table_bits; slot += 1u << bits) {
          table[slot] = entry | static_cast<uint32_t>(bits);
        }
        continue;
      }
      const uint32_t low = code & ((1u << table_bits) - 1);
      if (low != prefix) {
        prefix = low;
        // As many bits as the codes with this prefix need to be complete.
        second_bits = bits - table_bits;
        int open = (1 << second_bits) - (counts[bits] - number);
        while (open > 0 && table_bits + second_bits < longest) {
          ++second_bits;
          open = open * 2 - counts[table_bits + second_bits];
        }
        second = used;
        used += 1 << second_bits;
        if (used > room) return false;
        std::fill(table + second, table + used, kSpecial | 1);
        table[low] = kSpecial | kSecond | static_cast<uint32_t>(second) << 16 |
                     static_cast<uint32_t>(second_bits) << 8 | static_cast<uint32_t>(table_bits);
      }
      for (uint32_t slot = code >> table_bits; slot < 1u << second_bits; slot += 1u << (bits - table_bits)) {
        table[second + static_cast<int>(slot)] = entry | static_cast<uint32_t>(bits - table_bits);
      }
    }
  }
  return true;
}

class Unpacker {
 public:
  Unpacker(const uint8_t* in, int64_t in_size, uint8_t* out, int64_t out_size)
      : in_(in), in_begin_(in), in_end_(in + in_size), out_(out), out_begin_(out), out_end_(out + out_size) {}

  InflateResult run() {
    bool is_last = false;
    Inflated status = Inflated::kWhole;
    while (!is_last && status == Inflated::kWhole) {
      fill();
      is_last = take(1) != 0;
      const uint32_t type = take(2);
      if (type == 0) {
        status = stored();
      } else if (type == 1) {
        fixed();
        status = symbols();
      } else if (type == 2) {
        status = dynamic();
        if (status == Inflated::kWhole) status = symbols();
      } else {
        status = Inflated::kDamaged;
      }
      if (is_cut_off()) status = Inflated::kCutOff;
    }
    const int64_t unread = static_cast<int64_t>(count_ / 8) - past_;
    return {status, in_ - in_begin_ - std::max<int64_t>(0, unread), out_ - out_begin_};
  }

 private:
  // Makes sure of 56 bits; after the end of the input they are zeros, and counted.
  void fill() {
    while (count_ < 56) {
      if (in_ < in_end_) {
        bits_ |= static_cast<uint64_t>(*in_++) << count_;
      } else {
        ++past_;
      }
      count_ += 8;
    }
  }
  uint32_t take(unsigned count) {
    const auto found = static_cast<uint32_t>(bits_ & ((1ull << count) - 1));
    drop(count);
    return found;
  }
  void drop(unsigned count) {
    bits_ >>= count;
    count_ -= count;
  }
  bool is_cut_off() const { return static_cast<uint64_t>(past_) * 8 > count_; }

  uint32_t lookup(const uint32_t* table, int table_bits) {
    uint32_t entry = table[bits_ & ((1u << table_bits) - 1)];
    if ((entry & (kSpecial | kSecond)) == (kSpecial | kSecond)) {
      drop(static_cast<unsigned>(table_bits));
      entry = table[(entry >> 16 & 0x7fff) + (bits_ & ((1u << (entry >> 8 & 31)) - 1))];
    }
    drop(entry & 31);
    return entry;
  }

  Inflated stored() {
    drop(count_ & 7);
    if (is_cut_off()) return Inflated::kCutOff;
    in_ -= static_cast<int64_t>(count_ / 8) - past_;
    bits_ = 0;
    count_ = 0;
    past_ = 0;
    if (in_end_ - in_ < 4) return Inflated::kCutOff;
    const int64_t length = in_[0] | in_[1] << 8;
    if (length != ((in_[2] | in_[3] << 8) ^ 0xffff)) return Inflated::kDamaged;
    in_ += 4;
    if (length > in_end_ - in_) return Inflated::kCutOff;
    if (length > out_end_ - out_) return Inflated::kTooMuch;
    if (length > 0) std::memcpy(out_, in_, static_cast<size_t>(length));
    in_ += length;
    out_ += length;
    return Inflated::kWhole;
  }

  void fixed() {
    if (has_fixed_) return;  // Else a stream of many empty blocks would take a thousand times as long as its bytes.
    has_fixed_ = true;
    uint8_t lengths[kNumLengths];
    std::fill(lengths, lengths + 144, uint8_t{8});
    std::fill(lengths + 144, lengths + 256, uint8_t{9});
    std::fill(lengths + 256, lengths + 280, uint8_t{7});
    std::fill(lengths + 280, lengths + 288, uint8_t{8});
    build(Kind::kLengths, lengths, kNumLengths, kLengthBits, length_table_, kLengthEntries);
    std::fill(lengths, lengths + kNumDistances, uint8_t{5});
    build(Kind::kDistances, lengths, kNumDistances, kDistanceBits, distance_table_, kDistanceEntries);
  }

  Inflated dynamic() {
    has_fixed_ = false;
    const int num_lengths = static_cast<int>(take(5)) + 257;
    const int num_distances = static_cast<int>(take(5)) + 1;
    const int num_orders = static_cast<int>(take(4)) + 4;
    if (num_lengths > 286 || num_distances > 30) return Inflated::kDamaged;
    uint8_t orders[kNumOrders] = {};
    for (int number = 0; number < num_orders; ++number) {
      fill();
      orders[kOrder[number]] = static_cast<uint8_t>(take(3));
    }
    // The table of distances is not in use yet, and large enough.
    if (!build(Kind::kOrders, orders, kNumOrders, kOrderBits, distance_table_, kDistanceEntries))
      return Inflated::kDamaged;
    uint8_t lengths[kNumLengths + kNumDistances] = {};
    const int total = num_lengths + num_distances;
    for (int at = 0; at < total;) {
      fill();
      const uint32_t entry = lookup(distance_table_, kOrderBits);
      if (is_cut_off()) return Inflated::kCutOff;
      if (entry & kSpecial) return Inflated::kDamaged;
      const uint32_t symbol = entry >> 16;
      if (symbol < 16) {
        lengths[at++] = static_cast<uint8_t>(symbol);
        continue;
      }
      uint8_t value = 0;
      int repeat = 0;
      if (symbol == 16) {
        if (at == 0) return Inflated::kDamaged;
        value = lengths[at - 1];
        repeat = 3 + static_cast<int>(take(2));
      } else {
        repeat = symbol == 17 ? 3 + static_cast<int>(take(3)) : 11 + static_cast<int>(take(7));
      }
      if (repeat > total - at) return Inflated::kDamaged;
      std::fill(lengths + at, lengths + at + repeat, value);
      at += repeat;
    }
    if (lengths[256] == 0) return Inflated::kDamaged;  // The block would never end.
    if (!build(Kind::kLengths, lengths, num_lengths, kLengthBits, length_table_, kLengthEntries))
      return Inflated::kDamaged;
    if (!build(Kind::kDistances, lengths + num_lengths, num_distances, kDistanceBits, distance_table_,
               kDistanceEntries)) {
      return Inflated::kDamaged;
    }
    return Inflated::kWhole;
  }

  Inflated symbols() {
    bool is_over = false;
    Inflated status = symbols_fast(&is_over);
    while (status == Inflated::kWhole && !is_over) {
      fill();
      const uint32_t entry = lookup(length_table_, kLengthBits);
      if (is_cut_off()) return Inflated::kCutOff;
      if (entry & kLiteral) {
        if (out_ == out_end_) return Inflated::kTooMuch;
        *out_++ = static_cast<uint8_t>(entry >> 16);
      } else if (entry & kSpecial) {
        if (!(entry & kEnd)) return Inflated::kDamaged;
        is_over = true;
      } else {
        const int64_t length = (entry >> 16) + take(entry >> 8 & 31);
        fill();
        const uint32_t far = lookup(distance_table_, kDistanceBits);
        if (far & kSpecial) return is_cut_off() ? Inflated::kCutOff : Inflated::kDamaged;
        const int64_t distance = (far >> 16) + take(far >> 8 & 31);
        if (is_cut_off()) return Inflated::kCutOff;
        if (distance > out_ - out_begin_) return Inflated::kDamaged;
        if (length > out_end_ - out_) return Inflated::kTooMuch;
        for (int64_t i = 0; i < length; ++i, ++out_) *out_ = *(out_ - distance);
      }
    }
    return status;
  }

  // The same, as long as there is input for two loads, and room for the longest match and what copies write past it.
  Inflated symbols_fast(bool* is_over) {
    // All of it in registers: a byte that is written might else be part of any member.
    Fast at{in_, out_, bits_, count_};
    const Inflated status = at.run(*this, is_over);
    in_ = at.in;
    out_ = at.out;
    bits_ = at.bits;
    count_ = at.count;
    return status;
  }

  struct Fast {
    const uint8_t* in;
    uint8_t* out;
    uint64_t bits;
    unsigned count;

    Inflated run(const Unpacker& all, bool* is_over) {
      constexpr int64_t kRoom = 258 + 16 + 4;
      if (all.in_end_ - in < 16 || all.out_end_ - out < kRoom) return Inflated::kWhole;
      const uint8_t* const in_last = all.in_end_ - 16;
      const uint8_t* const out_last = all.out_end_ - kRoom;
#if defined(__x86_64__)
      static const bool has_bmi2 = __builtin_cpu_supports("bmi2");
      if (has_bmi2) {
        return run_bmi2(all.length_table_, all.distance_table_, in_last, all.out_begin_, out_last, is_over);
      }
#endif
      return loop(all.length_table_, all.distance_table_, in_last, all.out_begin_, out_last, is_over);
    }

   private:
#if defined(__x86_64__)
    // The same loop with shifts that need no flags.
    __attribute__((target("bmi2"))) Inflated run_bmi2(const uint32_t* lengths, const uint32_t* distances,
                                                      const uint8_t* in_last, const uint8_t* out_begin,
                                                      const uint8_t* out_last, bool* is_over) {
      return loop(lengths, distances, in_last, out_begin, out_last, is_over);
    }
#endif

    __attribute__((always_inline)) inline Inflated loop(const uint32_t* lengths, const uint32_t* distances,
                                                        const uint8_t* in_last, const uint8_t* out_begin,
                                                        const uint8_t* out_last, bool* is_over) {
      const uint8_t* from = in;
      uint8_t* to = out;
      uint64_t word = bits;
      unsigned have = count;
      Inflated status = Inflated::kWhole;
      const auto fill = [&] {  // There are 8 bytes of input.
        word |= load(from) << have;
        from += (63 - have) >> 3;
        have |= 56;
      };
      const auto drop = [&](uint32_t entry) {
        word >>= entry & 63;  // A shift looks at six bits anyway: the mask is free.
        have -= entry & 31;
      };
      const auto take = [&](uint32_t taken) {
        const auto found = static_cast<uint32_t>(word & ((1ull << taken) - 1));
        drop(taken);
        return found;
      };
      const auto second = [&](const uint32_t* table, uint32_t entry) {
        drop(entry);
        return table[(entry >> 16 & 0x7fff) + (word & ((1u << (entry >> 8 & 31)) - 1))];
      };
      constexpr uint64_t kLengthMask = (1u << kLengthBits) - 1;
      constexpr uint64_t kDistanceMask = (1u << kDistanceBits) - 1;
      while (from <= in_last && to <= out_last) {
        fill();
        uint32_t entry = lengths[word & kLengthMask];
        if (entry & kLiteral) {  // Up to four literals of the first table: 44 bits of at least 56.
          drop(entry);
          *to++ = static_cast<uint8_t>(entry >> 16);
          entry = lengths[word & kLengthMask];
          if (entry & kLiteral) {
            drop(entry);
            *to++ = static_cast<uint8_t>(entry >> 16);
            entry = lengths[word & kLengthMask];
            if (entry & kLiteral) {
              drop(entry);
              *to++ = static_cast<uint8_t>(entry >> 16);
              entry = lengths[word & kLengthMask];
              if (entry & kLiteral) {
                drop(entry);
                *to++ = static_cast<uint8_t>(entry >> 16);
                continue;
              }
            }
          }
          fill();  // In all, one iteration loads twice: no more than 14 bytes.
        }
        if (entry & kSpecial) {
          if (entry & kSecond) entry = second(lengths, entry);
          if (entry & kLiteral) {
            drop(entry);
            *to++ = static_cast<uint8_t>(entry >> 16);
            continue;
          }
          if (entry & kSpecial) {
            drop(entry);
            *is_over = true;
            if (!(entry & kEnd)) status = Inflated::kDamaged;
            break;
          }
        }
        // 15 + 5 bits for the length, 15 + 13 for the distance: 48 of at least 56.
        drop(entry);
        const int64_t length = (entry >> 16) + take(entry >> 8 & 31);
        entry = distances[word & kDistanceMask];
        if (entry & kSpecial) {
          if (entry & kSecond) entry = second(distances, entry);
          if (entry & kSpecial) {
            status = Inflated::kDamaged;
            break;
          }
        }
        drop(entry);
        const int64_t distance = (entry >> 16) + take(entry >> 8 & 31);
        if (distance > to - out_begin) {
          status = Inflated::kDamaged;
          break;
        }
        to = copy(to, length, distance);
      }
      in = from;
      out = to;
      bits = word;
      count = have;
      return status;
    }

    static uint64_t load(const uint8_t* from) {
      uint64_t word;
      std::memcpy(&word, from, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
      word = __builtin_bswap64(word);
#endif
      return word;
    }

    static uint8_t* copy(uint8_t* to, int64_t length, int64_t distance) {
      const uint8_t* from = to - distance;
      uint8_t* const end = to + length;
      if (distance >= 8) {
        do {
          std::memcpy(to, from, 8);
          to += 8;
          from += 8;
        } while (to < end);
      } else if (distance == 1) {
        std::memset(to, *from, static_cast<size_t>(length));
      } else {
        while (to < end) *to++ = *from++;
      }
      return end;
    }
  };

  const uint8_t* in_;
  const uint8_t* const in_begin_;
  const uint8_t* const in_end_;
  uint8_t* out_;
  uint8_t* const out_begin_;
  uint8_t* const out_end_;
  uint64_t bits_ = 0;
  unsigned count_ = 0;
  int64_t past_ = 0;
  bool has_fixed_ = false;  // Whether the tables are those of fixed codes.
  uint32_t length_table_[kLengthEntries];
  uint32_t distance_table_[kDistanceEntries];
};

}  // namespace

InflateResult inflate(const uint8_t* in, int64_t in_size, uint8_t* out, int64_t out_size) {
  return Unpacker(in, in_size, out, out_size).run();
}

uint32_t adler32(const uint8_t* data, int64_t size) {
  constexpr uint32_t kModulus = 65521;
  constexpr int64_t kBlock = 5536;  // A multiple of 32 after which the sums still fit into 32 bits.
  uint64_t low = 1;
  uint64_t high = 0;
  while (size > 0) {
    int64_t block = std::min(size, kBlock);
    size -= block;
#if defined(__SSE2__)
    // 32 bytes at a time: the first adds to `high` 32 times, the last once.
    const __m128i zero = _mm_setzero_si128();
    const __m128i weights[4] = {_mm_set_epi16(25, 26, 27, 28, 29, 30, 31, 32),
                                _mm_set_epi16(17, 18, 19, 20, 21, 22, 23, 24),
                                _mm_set_epi16(9, 10, 11, 12, 13, 14, 15, 16), _mm_set_epi16(1, 2, 3, 4, 5, 6, 7, 8)};
    __m128i sums = zero;
    __m128i before = zero;  // The sums of `sums` before each step.
    __m128i weighted = zero;
    const int64_t steps = block / 32;
    for (int64_t step = 0; step < steps; ++step, data += 32) {
      before = _mm_add_epi32(before, sums);
      for (int half = 0; half < 2; ++half) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data + 16 * half));
        sums = _mm_add_epi32(sums, _mm_sad_epu8(bytes, zero));
        weighted = _mm_add_epi32(weighted, _mm_madd_epi16(_mm_unpacklo_epi8(bytes, zero), weights[2 * half]));
        weighted = _mm_add_epi32(weighted, _mm_madd_epi16(_mm_unpackhi_epi8(bytes, zero), weights[2 * half + 1]));
      }
    }
    uint32_t lanes[3][4];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes[0]), sums);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes[1]), before);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes[2]), weighted);
    high += low * static_cast<uint64_t>(32 * steps);
    for (int lane = 0; lane < 4; ++lane) {
      low += lanes[0][lane];
      high += 32ull * lanes[1][lane] + lanes[2][lane];
    }
    block -= 32 * steps;
#endif
    for (int64_t i = 0; i < block; ++i) {
      low += *data++;
      high += low;
    }
    low %= kModulus;
    high %= kModulus;
  }
  return static_cast<uint32_t>(high << 16 | low);
}

}  // namespace penstock
