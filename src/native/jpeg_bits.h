// The bits of a JPEG's pixels: its Huffman codes, and the coefficients of a block of 8 x 8 that they stand for.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace penstock {
namespace jpeg {

// Loops over codes and pixels are compiled for several kinds of machines: they are parts of functions that say for which.
#define PENSTOCK_INLINE inline __attribute__((always_inline))

constexpr int kBlockSide = 8;
constexpr int kBlockSize = kBlockSide * kBlockSide;
constexpr int kLongestCode = 16;
constexpr int kLookupBits =
    11;  // Codes with their values that are looked up in one go; tables of them stay in a cache.
constexpr int kMostDcBits = 11;  // Of a value, in pixels of 8 bits.
constexpr int kMostAcBits = 10;
constexpr int32_t kMostDc = 1 << (kMostDcBits - 1);
// What a block may read beyond the end of its data, before that is noticed; the data must have as many zeros there.
constexpr int64_t kBeyond = kBlockSize * 32 / 8 + 8;

constexpr uint32_t kLongestStep = 16;  // From one coefficient to the next.
constexpr uint32_t kNoMore = 63;       // As a step: there is none. Longer ones would not fit a `Codes`.
constexpr uint32_t kPlaces = kBlockSize + kNoMore;

// Where coefficients stand in their block, in the order in which they come. Steps may lead beyond the last: behind it.
constexpr std::array<uint8_t, kPlaces> zigzag() {
  constexpr uint8_t kWithin[kBlockSize] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                           12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                           35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                           58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};
  std::array<uint8_t, kPlaces> places{};
  for (size_t i = 0; i < kPlaces; ++i) places[i] = i < kBlockSize ? kWithin[i] : kBlockSize;
  return places;
}
constexpr std::array<uint8_t, kPlaces> kZigzag = zigzag();

// What a number of so many bits stands for: those that begin with 0 are negative.
inline int32_t value_of(int32_t written, int count) {
  return count == 0 || written >= (1 << (count - 1)) ? written : written - (1 << count) + 1;
}

// Bits from the first of a byte to its last; 56 or more are at hand after `fill`.
class Bits {
 public:
  Bits() = default;
  Bits(const uint8_t* at, const uint8_t* end) : at_(at), end_(end) {}

  PENSTOCK_INLINE void fill() {
    uint64_t word;
    std::memcpy(&word, at_, sizeof word);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    bits_ |= word >> count_;
    at_ += (63 - count_) >> 3;
    count_ |= 56;
  }

  // The next bits, up to 32 and at least one, as a number.
  PENSTOCK_INLINE uint32_t peek(int count) const { return static_cast<uint32_t>(bits_ >> (64 - count)); }

  PENSTOCK_INLINE void skip(uint32_t count) {
    bits_ <<= count;
    count_ -= count;
  }

  int32_t take_value(int count) {
    if (count == 0) return 0;
    const auto written = static_cast<int32_t>(peek(count));
    skip(static_cast<uint32_t>(count));
    return value_of(written, count);
  }

  // Where the first byte is of which no bit was taken.
  const uint8_t* rest() const { return at_ - (count_ >> 3); }
  bool is_beyond() const { return rest() > end_; }
  bool is_at_end() const { return rest() == end_; }

 private:
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  uint64_t bits_ = 0;  // The next bits are the highest.
  uint32_t count_ = 0;
};

// One or two codes with their values, as the next bits begin with them, in one number of 32 bits, so that two tables of
// them leave room in the smallest cache. Where there is one code, the second is a step of 0 to the same value: to put both
// does no harm, and takes no decision.
class Codes {
 public:
  Codes() = default;  // The next code, or its value, is too long to be looked up.
  Codes(uint32_t nbits, uint32_t step, int32_t value) : Codes(nbits, step, 0, value, value) {}
  Codes(Codes first, Codes second)
      : Codes(first.nbits() + second.nbits(), first.step(), second.step(), first.value(), second.value()) {}

  PENSTOCK_INLINE bool is_known() const { return all_ != 0; }
  PENSTOCK_INLINE uint32_t nbits() const { return all_ & 15; }  // Of all of them.
  PENSTOCK_INLINE uint32_t step() const { return all_ >> 4 & 63; }
  PENSTOCK_INLINE uint32_t second_step() const { return all_ >> 10 & 63; }
  PENSTOCK_INLINE int32_t value() const { return static_cast<int8_t>(all_ >> 16); }
  PENSTOCK_INLINE int32_t second_value() const { return static_cast<int8_t>(all_ >> 24); }

 private:
  Codes(uint32_t nbits, uint32_t step, uint32_t second_step, int32_t value, int32_t second_value)
      : all_(nbits | step << 4 | second_step << 10 | static_cast<uint32_t>(value & 255) << 16 |
             static_cast<uint32_t>(second_value & 255) << 24) {}

  uint32_t all_ = 0;
};

// The codes of one table.
class CodeTable {
 public:
  // `counts` says how many codes there are of 1 to 16 bits, `symbols` what they stand for. Returns false if they can't be.
  bool make(const uint8_t* counts, const uint8_t* symbols, int64_t num_symbols, bool is_dc) {
    singles_.assign(size_t{1} << kLookupBits, Codes());
    symbols_.assign(symbols, symbols + num_symbols);
    is_dc_ = is_dc;
    int32_t code = 0;
    int32_t used = 0;
    for (int nbits = 1; nbits <= kLongestCode; ++nbits, code <<= 1) {
      first_[static_cast<size_t>(nbits)] = used - code;
      for (int i = 0; i < counts[nbits - 1]; ++i, ++code, ++used) {
        if (code >= (1 << nbits) - 1 || used >= num_symbols || !is_known(symbols[used])) return false;
        look_up(code, nbits, symbols[used]);
      }
      // As wide as the longest: what is below it is a code of so many bits or fewer.
      stop_[static_cast<size_t>(nbits - 1)] = code << (kLongestCode - nbits);
    }
    if (!is_dc) pair_up();
    return used == num_symbols;
  }

  bool is_made() const { return !singles_.empty(); }

  PENSTOCK_INLINE Codes look(const Bits& bits) const { return singles_[bits.peek(kLookupBits)]; }
  PENSTOCK_INLINE Codes look_for_two(const Bits& bits) const { return pairs_[bits.peek(kLookupBits)]; }

  // Takes a code, of whatever length, and its value; false if there is no such code.
  bool take(Bits& bits, uint32_t& step, int32_t& value) const {
    const auto next = static_cast<int32_t>(bits.peek(kLongestCode));
    int nbits = 1;
    // All of them: to stop at the right one is a guess that a machine gets wrong.
    for (const int32_t stop : stop_) nbits += next >= stop;
    if (nbits > kLongestCode) return false;
    const int32_t place = (next >> (kLongestCode - nbits)) + first_[static_cast<size_t>(nbits)];
    const uint8_t symbol = symbols_[static_cast<size_t>(place)];
    bits.skip(static_cast<uint32_t>(nbits));
    step = step_of(symbol);
    value = bits.take_value(size_of(symbol));
    return true;
  }

 private:
  bool is_known(uint8_t symbol) const {
    if (is_dc_) return symbol <= kMostDcBits;
    return size_of(symbol) <= kMostAcBits && (size_of(symbol) != 0 || symbol == 0 || symbol == 0xF0);
  }

  // The bits of the value.
  int size_of(uint8_t symbol) const { return is_dc_ ? symbol : symbol & 15; }

  // Sixteen zeros are fifteen, and a value of zero.
  uint32_t step_of(uint8_t symbol) const { return symbol == 0 ? kNoMore : (symbol >> 4) + 1u; }

  void look_up(int32_t code, int nbits, uint8_t symbol) {
    const int size = size_of(symbol);
    const int rest = kLookupBits - nbits - size;
    if (rest < 0 || size >= 8) return;
    Codes* entries = singles_.data() + (static_cast<size_t>(code) << (kLookupBits - nbits));
    for (int32_t written = 0; written < (1 << size); ++written, entries += size_t{1} << rest) {
      const Codes found(static_cast<uint32_t>(nbits + size), step_of(symbol), value_of(written, size));
      std::fill(entries, entries + (size_t{1} << rest), found);
    }
  }

  // Puts a second code behind each that leaves room for it.
  void pair_up() {
    constexpr uint32_t kMask = (1 << kLookupBits) - 1;
    pairs_ = singles_;
    for (uint32_t bits = 0; bits <= kMask; ++bits) {
      const Codes first = singles_[bits];
      const Codes second = singles_[bits << first.nbits() & kMask];
      const bool is_room = first.nbits() + second.nbits() <= kLookupBits;
      if (first.is_known() && first.step() != kNoMore && second.is_known() && is_room) {
        pairs_[bits] = Codes(first, second);
      }
    }
  }

  std::vector<Codes> singles_;
  std::vector<Codes> pairs_;
  std::vector<uint8_t> symbols_;
  std::array<int32_t, kLongestCode + 1> first_{};  // Added to a code of so many bits, its place among the symbols.
  std::array<int32_t, kLongestCode> stop_{};  // The first number of 16 bits that is no code of so many bits or fewer.
  bool is_dc_ = false;
};

// The coefficients of a block, and a place behind them.
struct Block {
  alignas(32) int16_t values[kBlockSize + 1];
  bool is_flat;  // Only the first one is not 0.

  // By a number of bytes for which compilers call nobody, nor repeat one instruction.
  PENSTOCK_INLINE void clear() {
    for (int part = 0; part < kBlockSize; part += kBlockSide) {
      std::memset(values + part, 0, kBlockSide * sizeof *values);
    }
  }
};

// Reads a block; returns false if it is damaged.
PENSTOCK_INLINE bool read_block(Bits& bits, const CodeTable& dc, const CodeTable& ac, int32_t& last_dc, Block& block) {
  block.clear();
  bits.fill();
  Codes codes = dc.look(bits);
  uint32_t step = 0;
  int32_t change = codes.value();
  if (codes.is_known()) {
    bits.skip(codes.nbits());
  } else if (!dc.take(bits, step, change)) {
    return false;
  }
  last_dc += change;
  if (last_dc < -kMostDc || last_dc > kMostDc) return false;
  block.values[0] = static_cast<int16_t>(last_dc);

  uint32_t place = 0;
  const auto put = [&](int32_t value) { block.values[kZigzag[place]] = static_cast<int16_t>(value); };
  const auto take = [&] {
    int32_t value = 0;
    if (!ac.take(bits, step, value)) return false;
    place += step;
    put(value);
    return true;
  };
  bool is_over = false;
  // Two looks for each fill, of up to 27 bits each: one waits for the other as it is.
  for (bool is_second = false; place < kBlockSize - 1 - kLongestStep; is_second = !is_second) {
    if (!is_second) bits.fill();
    codes = ac.look_for_two(bits);
    if (__builtin_expect(!codes.is_known(), 0)) {
      if (!take()) return false;
      continue;
    }
    bits.skip(codes.nbits());
    place += step = codes.step();
    put(codes.value());
    place += codes.second_step();
    put(codes.second_value());
    is_over = codes.second_step() == kNoMore;
  }
  block.is_flat = step == kNoMore && place == kNoMore;
  // The next code may be the last one of the block, and what comes behind it another block's.
  while (place < kBlockSize - 1) {
    bits.fill();
    codes = ac.look(bits);
    if (__builtin_expect(!codes.is_known(), 0)) {
      if (!take()) return false;
      continue;
    }
    bits.skip(codes.nbits());
    place += step = codes.step();
    put(codes.value());
  }
  if (place >= kBlockSize && step != kNoMore && !is_over) return false;
  return !bits.is_beyond();
}

}  // namespace jpeg
}  // namespace penstock
