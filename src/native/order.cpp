// A seeded bijection on [0, num_rows): where the row at each position of a shuffled epoch is found.
//
// A Feistel network over the rectangle left x right, the smallest near-square that holds num_rows: no table, so
// ten billion rows cost no more memory, and no more time a row, than ten. Results outside the range walk on along
// their cycle until they are inside; the rectangle is so tight that few do. Orders are promised never to change:
// this arithmetic is frozen (see the golden tests).
#include "order.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "buffer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock {
namespace {

// One row is a chain of dependent multiplications; rows in lockstep fill the gaps in it.
constexpr int kLanes = 16;

using Pass = void (*)(const Permutation&, uint64_t*);

void pass_portable(const Permutation& permutation, uint64_t* x) { permutation.pass<kLanes>(x); }

void pass_back(const Permutation& permutation, uint64_t* x) { permutation.pass_back<kLanes>(x); }

#if defined(__x86_64__)
#define PENSTOCK_AVX2 __attribute__((target("avx2"), always_inline)) inline

// The same in 64-bit lanes of AVX2. It has no 64-bit multiplication, but left and right are below 2**32.
PENSTOCK_AVX2 __m256i multiply(__m256i a, uint64_t b) {
  const __m256i low = _mm256_set1_epi64x(static_cast<int64_t>(b));
  const __m256i high = _mm256_set1_epi64x(static_cast<int64_t>(b >> 32));
  const __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), low), _mm256_mul_epu32(a, high));
  return _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(cross, 32));
}

PENSTOCK_AVX2 __m256i mix(__m256i z) {
  z = multiply(_mm256_xor_si256(z, _mm256_srli_epi64(z, 30)), 0xBF58476D1CE4E5B9u);
  z = multiply(_mm256_xor_si256(z, _mm256_srli_epi64(z, 27)), 0x94D049BB133111EBu);
  return _mm256_xor_si256(z, _mm256_srli_epi64(z, 31));
}

// (to + mulhi(mix(from + key), modulus)) mod modulus.
PENSTOCK_AVX2 __m256i half_round(__m256i to, __m256i from, uint64_t key, __m256i modulus) {
  const __m256i hash = mix(_mm256_add_epi64(from, _mm256_set1_epi64x(static_cast<int64_t>(key))));
  const __m256i low = _mm256_srli_epi64(_mm256_mul_epu32(hash, modulus), 32);
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(hash, 32), modulus);
  const __m256i sum = _mm256_add_epi64(to, _mm256_srli_epi64(_mm256_add_epi64(high, low), 32));
  // Below the modulus the subtraction wraps around to more than the sum.
  return _mm256_min_epu32(sum, _mm256_sub_epi32(sum, modulus));
}

__attribute__((target("avx2"))) void pass_avx2(const Permutation& permutation, uint64_t* x) {
  constexpr int kVectors = kLanes / 4;
  alignas(32) uint64_t l_lanes[kLanes];
  alignas(32) uint64_t r_lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) permutation.split(x[i], l_lanes[i], r_lanes[i]);
  const __m256i left = _mm256_set1_epi64x(static_cast<int64_t>(permutation.left));
  const __m256i right = _mm256_set1_epi64x(static_cast<int64_t>(permutation.right));
  __m256i l[kVectors];
  __m256i r[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    l[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(l_lanes) + i);
    r[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(r_lanes) + i);
  }
  for (int64_t round = 0; round < permutation.rounds; round += 2) {
    for (int i = 0; i < kVectors; ++i) l[i] = half_round(l[i], r[i], permutation.keys[round], left);
    for (int i = 0; i < kVectors; ++i) r[i] = half_round(r[i], l[i], permutation.keys[round + 1], right);
  }
  for (int i = 0; i < kVectors; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x) + i, _mm256_add_epi64(_mm256_mul_epu32(l[i], right), r[i]));
  }
}

Pass best_pass() { return __builtin_cpu_supports("avx2") ? pass_avx2 : pass_portable; }
#else
Pass best_pass() { return pass_portable; }
#endif

}  // namespace

int64_t permute_all(const Permutation& permutation, const int64_t* positions, int64_t* out, int64_t count,
                    bool is_back) {
  static const Pass forward = best_pass();
  const Pass pass = is_back ? pass_back : forward;
  uint64_t x[kLanes];
  int64_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    bool is_out = false;
    for (int i = 0; i < kLanes; ++i) {
      x[i] = static_cast<uint64_t>(positions[done + i]);
      is_out |= x[i] >= permutation.num_rows;
    }
    if (is_out) break;
    pass(permutation, x);
    permutation.walk_inside<kLanes>(x, is_back);
    for (int i = 0; i < kLanes; ++i) out[done + i] = static_cast<int64_t>(x[i]);
  }
  for (; done < count; ++done) {
    x[0] = static_cast<uint64_t>(positions[done]);
    if (x[0] >= permutation.num_rows) return done;
    is_back ? permutation.pass_back<1>(x) : permutation.pass<1>(x);
    permutation.walk_inside<1>(x, is_back);
    out[done] = static_cast<int64_t>(x[0]);
  }
  return -1;
}

void check_rounds(int64_t rounds) {
  if (rounds < kMinRounds || rounds > kMaxRounds || rounds % 2 != 0) {
    raise_value_error("keys must be an even number of 2 to 64 keys, got " + std::to_string(rounds) + ".");
  }
}

namespace {

int64_t checked_num_rows(nb::handle object) {
  nb::object index = nb::steal(PyNumber_Index(object.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  int overflow = 0;
  const int64_t num_rows = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0 || num_rows < 0 || num_rows > kMaxRows) {
    raise_value_error(std::string("num_rows must be between 0 and 2**62, got ") + nb::str(index).c_str() + ".");
  }
  return num_rows;
}

void run(nb::handle positions_object, nb::handle out_object, nb::handle num_rows_object, nb::handle keys_object,
         bool is_back) {
  const Buffer positions(positions_object, "positions", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kInt64, 1, Access::kWrite);
  const Buffer keys(keys_object, "keys", Element::kUint64, 1, Access::kRead);
  const int64_t num_rows = checked_num_rows(num_rows_object);
  const int64_t count = positions.size(0);
  const int64_t rounds = keys.size(0);
  out.require_size(0, count, "positions");
  check_rounds(rounds);
  if (out.data<void>() != positions.data<void>() && may_share_memory(out, positions)) {
    raise_value_error("out must be the same array as positions or share no memory with it.");
  }
  if (may_share_memory(out, keys)) raise_value_error("out must share no memory with keys.");
  if (count == 0) return;

  int64_t bad = num_rows == 0 ? 0 : -1;
  if (num_rows > 0) {
    const Permutation permutation(static_cast<uint64_t>(num_rows), keys.data<const uint64_t>(), rounds);
    nb::gil_scoped_release release;
    bad = permute_all(permutation, positions.data<const int64_t>(), out.data<int64_t>(), count, is_back);
  }
  if (bad >= 0) {
    raise_index_error("positions[" + std::to_string(bad) + "] must be in [0, " + std::to_string(num_rows) + "), got " +
                      std::to_string(positions.data<const int64_t>()[bad]) + ".");
  }
}

void permute(nb::handle positions, nb::handle out, nb::handle num_rows, nb::handle keys) {
  run(positions, out, num_rows, keys, false);
}

void unpermute(nb::handle rows, nb::handle out, nb::handle num_rows, nb::handle keys) {
  run(rows, out, num_rows, keys, true);
}

// Lanes that are written together: a cache line of each row of the table.
constexpr int64_t kLanesAtOnce = 8;

void permute_lanes(nb::handle out_object, nb::handle keys_object, nb::handle places_object, int64_t block_rows,
                   int64_t start) {
  const Buffer out(out_object, "out", Element::kInt64, 2, Access::kWrite);
  const Buffer keys(keys_object, "keys", Element::kUint64, 2, Access::kRead);
  const Buffer places(places_object, "places", Element::kInt64, 1, Access::kRead);
  const int64_t num_rows = out.size(0);
  const int64_t lanes = out.size(1);
  const int64_t rounds = keys.size(1);
  keys.require_size(0, lanes, "a row of out");
  check_rounds(rounds);
  if (may_share_memory(out, keys) || may_share_memory(out, places)) {
    raise_value_error("out must share no memory with keys or places.");
  }
  if (block_rows < 1 || start < 0) raise_value_error("block_rows must be at least 1, and start at least 0.");
  if (num_rows == 0 || lanes == 0) return;
  if ((start + num_rows * lanes - 1) / block_rows >= places.size(0)) {
    raise_value_error("places must have a block for every row of out.");
  }
  const int64_t step = out.stride(0) / 8;
  if (keys.stride(0) != rounds * 8 || (num_rows > 1 && step < lanes)) {
    raise_value_error("out must have no two rows in one place, and keys must be contiguous.");
  }

  nb::gil_scoped_release release;
  const auto size = static_cast<size_t>(num_rows);
  std::vector<int64_t> positions(size);
  std::vector<int64_t> moved(size);  // For a row of a lane, the row of `places` that it becomes.
  for (size_t i = 0; i < size; ++i) positions[i] = static_cast<int64_t>(i);
  std::vector<int64_t> mixed(size * kLanesAtOnce);
  for (int64_t first = 0; first < lanes; first += kLanesAtOnce) {
    const int64_t count = std::min(kLanesAtOnce, lanes - first);
    for (int64_t lane = 0; lane < count; ++lane) {
      const uint64_t* own = keys.data<const uint64_t>() + (first + lane) * rounds;
      int64_t* to = mixed.data() + lane * num_rows;
      const Permutation permutation(static_cast<uint64_t>(num_rows), own, rounds);
      permute_all(permutation, positions.data(), to, num_rows, false);
      const int64_t begin = start + (first + lane) * num_rows;
      const int64_t* place = places.data<const int64_t>() + begin / block_rows;
      int64_t inside = begin % block_rows;  // A lane may begin within a block.
      for (int64_t row = 0; row < num_rows; ++place, inside = 0) {
        const int64_t stop = std::min(num_rows, row + block_rows - inside);
        const int64_t from = *place * block_rows + inside - row;
        for (; row < stop; ++row) moved[static_cast<size_t>(row)] = from + row;
      }
      for (int64_t row = 0; row < num_rows; ++row) to[row] = moved[static_cast<size_t>(to[row])];
    }
    for (int64_t row = 0; row < num_rows; ++row) {
      int64_t* to = out.data<int64_t>() + row * step + first;
      for (int64_t lane = 0; lane < count; ++lane) to[lane] = mixed[static_cast<size_t>(lane * num_rows + row)];
    }
  }
}

}  // namespace

void bind_order(nb::module_& m) {
  m.def("unpermute", &unpermute, nb::arg("rows"), nb::arg("out"), nb::arg("num_rows"), nb::arg("keys"),
        "Write to out[i] the position that permute maps to rows[i].");
  m.def("permute_lanes", &permute_lanes, nb::arg("out"), nb::arg("keys"), nb::arg("places"), nb::arg("block_rows"),
        nb::arg("start") = 0,
        "Write to out[:, lane] the rows of the blocks of that lane, in the order that its own keys select.");
  m.def("permute", &permute, nb::arg("positions"), nb::arg("out"), nb::arg("num_rows"), nb::arg("keys"),
        "Write to out[i] the image of positions[i] under the bijection on [0, num_rows) that keys select.");
}

}  // namespace penstock
