// A seeded bijection on [0, num_rows), for kernels that put rows in a random order. The arithmetic is frozen: orders
// are promised never to change (see order.cpp).
#pragma once

#include <cmath>
#include <cstdint>

namespace penstock {

constexpr int64_t kMaxRows = int64_t{1} << 62;
constexpr int64_t kMinRounds = 2;
constexpr int64_t kMaxRounds = 64;

inline uint64_t mulhi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

// The finalizer of splitmix64.
inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

inline uint64_t ceil_sqrt(uint64_t value) {
  // A double has too few bits for an exact root of 62 bits: start there and step to it.
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(value)));
  while (root * root < value) ++root;
  while (root > 0 && (root - 1) * (root - 1) >= value) --root;
  return root;
}

struct Permutation {
  uint64_t num_rows;
  uint64_t left;
  uint64_t right;
  uint64_t reciprocal;  // of `right`: the time of a hardware division depends on its operands
  const uint64_t* keys;
  int64_t rounds;

  Permutation(uint64_t rows, const uint64_t* round_keys, int64_t num_rounds)
      : num_rows(rows),
        left(ceil_sqrt(rows)),
        right((rows + left - 1) / left),
        reciprocal(~uint64_t{0} / right),
        keys(round_keys),
        rounds(num_rounds) {}

  inline void split(uint64_t x, uint64_t& l, uint64_t& r) const {
    // The product with the rounded-down reciprocal is the quotient or one less.
    l = mulhi(x, reciprocal);
    r = x - l * right;
    const bool is_short = r >= right;
    l += is_short;
    r -= is_short ? right : 0;
  }

  // Once through the network, in place. Every x must be below left * right.
  template <int kCount>
  inline void pass(uint64_t* x) const {
    uint64_t l[kCount];
    uint64_t r[kCount];
    for (int i = 0; i < kCount; ++i) split(x[i], l[i], r[i]);
    for (int64_t round = 0; round < rounds; round += 2) {
      const uint64_t even = keys[round];
      const uint64_t odd = keys[round + 1];
      for (int i = 0; i < kCount; ++i) l[i] = add(l[i], mulhi(mix(r[i] + even), left), left);
      for (int i = 0; i < kCount; ++i) r[i] = add(r[i], mulhi(mix(l[i] + odd), right), right);
    }
    for (int i = 0; i < kCount; ++i) x[i] = l[i] * right + r[i];
  }

  // The way back: the same rounds in reverse, subtracting.
  template <int kCount>
  inline void pass_back(uint64_t* x) const {
    uint64_t l[kCount];
    uint64_t r[kCount];
    for (int i = 0; i < kCount; ++i) split(x[i], l[i], r[i]);
    for (int64_t round = rounds - 2; round >= 0; round -= 2) {
      const uint64_t even = keys[round];
      const uint64_t odd = keys[round + 1];
      for (int i = 0; i < kCount; ++i) r[i] = subtract(r[i], mulhi(mix(l[i] + odd), right), right);
      for (int i = 0; i < kCount; ++i) l[i] = subtract(l[i], mulhi(mix(r[i] + even), left), left);
    }
    for (int i = 0; i < kCount; ++i) x[i] = l[i] * right + r[i];
  }

  static inline uint64_t subtract(uint64_t a, uint64_t b, uint64_t modulus) { return a >= b ? a - b : a + modulus - b; }

  static inline uint64_t add(uint64_t a, uint64_t b, uint64_t modulus) {
    const uint64_t sum = a + b;
    const uint64_t wrapped = sum - modulus;
    return sum >= modulus ? wrapped : sum;
  }

  template <int kCount>
  inline void walk_inside(uint64_t* x, bool is_back) const {
    for (int i = 0; i < kCount; ++i) {
      while (x[i] >= num_rows) is_back ? pass_back<1>(x + i) : pass<1>(x + i);
    }
  }
};

// Writes to out[i] the image of positions[i], or the position that it is the image of. Returns the index of the first
// position out of range, or -1. Positions are copied before they are checked, so that another thread that writes to
// them meanwhile can spoil the result but not the loop.
int64_t permute_all(const Permutation& permutation, const int64_t* positions, int64_t* out, int64_t count,
                    bool is_back = false);

// Raises ValueError if there can't be so many round keys.
void check_rounds(int64_t rounds);

}  // namespace penstock
