// Which row each row of a part is, where rows were dealt to several parts: by arithmetic, or by marks, a bit a row.
//
// Dealt: every run of `run_rows` rows gives the part as many rows, those of one of a few patterns, turned by a random
// number of places. So any row is found in the time of a hash. Which ones a part has is promised never to change: this
// arithmetic is frozen (see the golden tests).
#include "choose.h"

#include <algorithm>
#include <memory>
#include <string>

#include "buffer.h"
#include "order.h"

namespace penstock {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr int64_t kMaxRun = 1 << 20;
constexpr int64_t kWordsAtOnce = 8;  // Words whose bits are counted together.

class Dealt final : public Choice {
 public:
  Dealt(uint64_t key, int64_t num_runs, nb::handle places, nb::handle firsts, nb::handle tail)
      : key_(key),
        num_runs_(num_runs),
        places_(places, "places", Element::kUint32, 2, Access::kRead),
        firsts_(firsts, "firsts", Element::kUint32, 2, Access::kRead),
        tail_(tail, "tail", Element::kInt64, 1, Access::kRead),
        share_(places_.size(1)),
        run_rows_(firsts_.size(1)) {
    firsts_.require_size(0, places_.size(0), "places");
    const int64_t count = places_.size(0);
    if (count < 1 || (count & (count - 1)) != 0) {
      raise_value_error("there must be 1, 2, 4, 8, ... patterns, got " + std::to_string(count) + ".");
    }
    if (share_ < 1 || share_ > run_rows_ || run_rows_ > kMaxRun) {
      raise_value_error("a run must have 1 to 2**20 rows and the part some of them, got " + std::to_string(share_) +
                        " of " + std::to_string(run_rows_) + ".");
    }
    if (num_runs < 0 || num_runs > kMaxRows / run_rows_) {
      raise_value_error("there must be 0 to 2**62 rows, got " + std::to_string(num_runs) + " runs.");
    }
    for (const Buffer* one : {&places_, &firsts_}) {
      if (one->size(0) > 1 && one->stride(0) != one->size(1) * 4) {
        raise_value_error(std::string(one->name()) + " must be contiguous.");
      }
    }
  }

  bool rows(const int64_t* positions, int64_t* out, int64_t count) const override {
    const auto share = static_cast<uint64_t>(share_);
    const auto run_rows = static_cast<uint64_t>(run_rows_);
    const auto dealt = static_cast<uint64_t>(num_runs_) * share;
    const uint64_t end = dealt + static_cast<uint64_t>(tail_.size(0));
    const auto mask = static_cast<uint64_t>(places_.size(0) - 1);
    const auto* places = places_.data<const uint32_t>();
    const auto* firsts = firsts_.data<const uint32_t>();
    const uint64_t reciprocal = ~uint64_t{0} / share;
    for (int64_t i = 0; i < count; ++i) {
      const auto position = static_cast<uint64_t>(positions[i]);
      if (position >= dealt) {
        if (position >= end) return false;
        out[i] = tail_.data<const int64_t>()[position - dealt];
        continue;
      }
      // The product with the rounded-down reciprocal is the quotient or one less.
      uint64_t run = mulhi(position, reciprocal);
      uint64_t place = position - run * share;
      if (place >= share) {
        ++run;
        place -= share;
      }
      const uint64_t hash = mix(key_ + (run + 1) * kGolden);
      const uint64_t pattern = hash & mask;
      const uint64_t turn = mulhi(hash, run_rows);
      // What the turn moves over the end of the run comes first.
      place += firsts[pattern * run_rows + turn];
      if (place >= share) place -= share;
      if (place >= share) return false;  // A table that is none.
      uint64_t row = places[pattern * share + place] + turn;
      if (row >= run_rows) row -= run_rows;
      out[i] = static_cast<int64_t>(run * run_rows + row);
    }
    return true;
  }

  bool span(int64_t first, int64_t count, int64_t* out) const override {
    const int64_t dealt = num_runs_ * share_;
    if (first < 0 || count < 0 || first > dealt + tail_.size(0) - count) return false;
    const auto mask = static_cast<uint64_t>(places_.size(0) - 1);
    int64_t run = first / share_;
    int64_t place = first - run * share_;
    for (; count > 0 && run < num_runs_; ++run, place = 0) {
      const uint64_t hash = mix(key_ + (static_cast<uint64_t>(run) + 1) * kGolden);
      const auto pattern = static_cast<int64_t>(hash & mask);
      const auto turn = static_cast<int64_t>(mulhi(hash, static_cast<uint64_t>(run_rows_)));
      const int64_t lead = firsts_.data<const uint32_t>()[pattern * run_rows_ + turn];
      if (lead >= share_) return false;  // A table that is none.
      const uint32_t* own = places_.data<const uint32_t>() + pattern * share_;
      // Those that the turn moves over the end of the run come first, then the others.
      const int64_t stop = std::min(share_, place + count);
      const bool moves_all = own[0] + turn >= run_rows_;  // All or none, if the first one is first.
      const int64_t num_moved = lead > 0 ? share_ - lead : moves_all ? share_ : 0;
      const int64_t start = run * run_rows_ + turn;
      const int64_t middle = std::clamp(num_moved, place, stop);
      for (int64_t i = place; i < middle; ++i) *out++ = own[lead + i] + start - run_rows_;
      for (int64_t i = middle; i < stop; ++i) *out++ = own[i - num_moved] + start;
      count -= stop - place;
    }
    if (count > 0) {
      const int64_t begin = std::max<int64_t>(0, first - dealt);
      std::copy_n(tail_.data<const int64_t>() + begin, count, out);
    }
    return true;
  }

 private:
  uint64_t key_;
  int64_t num_runs_;
  Buffer places_;
  Buffer firsts_;
  Buffer tail_;
  int64_t share_;
  int64_t run_rows_;
};

class Marked final : public Choice {
 public:
  Marked(nb::handle words, nb::handle ranks)
      : words_(words, "words", Element::kUint64, 1, Access::kRead),
        ranks_(ranks, "ranks", Element::kInt64, 1, Access::kRead) {
    const int64_t blocks = (words_.size(0) + kWordsAtOnce - 1) / kWordsAtOnce;
    ranks_.require_size(0, blocks + 1, "words / 8, and one more");
  }

  bool rows(const int64_t* positions, int64_t* out, int64_t count) const override {
    const auto* words = words_.data<const uint64_t>();
    const auto* ranks = ranks_.data<const int64_t>();
    const int64_t blocks = ranks_.size(0) - 1;
    const int64_t end = ranks[blocks];
    int64_t block = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = positions[i];
      if (position < 0 || position >= end) return false;
      // Rows in order are found where the one before them was, or right behind.
      if (position < ranks[block] || position >= ranks[block + 1]) {
        const bool is_next = block + 1 < blocks && position >= ranks[block + 1] && position < ranks[block + 2];
        block = is_next ? block + 1 : search(position);
      }
      int64_t left = position - ranks[block];
      int64_t number = block * kWordsAtOnce;
      for (;; ++number) {
        if (number >= words_.size(0)) return false;  // Ranks that are none.
        const int64_t here = __builtin_popcountll(words[number]);
        if (left < here) break;
        left -= here;
      }
      uint64_t word = words[number];
      for (; left > 0; --left) word &= word - 1;
      out[i] = number * 64 + __builtin_ctzll(word);
    }
    return true;
  }

  bool span(int64_t first, int64_t count, int64_t* out) const override {
    const auto* words = words_.data<const uint64_t>();
    if (count <= 0) return count == 0;
    if (!rows(&first, out, 1)) return false;
    int64_t number = *out / 64;
    // The bits after the first row's.
    uint64_t word = words[number] & (~uint64_t{1} << (*out % 64));
    for (int64_t i = 1; i < count; ++i) {
      while (word == 0) {
        if (++number >= words_.size(0)) return false;
        word = words[number];
      }
      out[i] = number * 64 + __builtin_ctzll(word);
      word &= word - 1;
    }
    return true;
  }

 private:
  // The last block that begins at or before a position, which is in range.
  int64_t search(int64_t position) const {
    const auto* ranks = ranks_.data<const int64_t>();
    int64_t low = 0;
    int64_t high = ranks_.size(0) - 1;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (ranks[middle] <= position ? low : high) = middle;
    }
    return low;
  }

  Buffer words_;
  Buffer ranks_;
};

void run(const Choice& choice, nb::handle positions_object, nb::handle out_object) {
  const Buffer positions(positions_object, "positions", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kInt64, 1, Access::kWrite);
  out.require_size(0, positions.size(0), "positions");
  if (out.data<void>() != positions.data<void>() && may_share_memory(out, positions)) {
    raise_value_error("out must be the same array as positions or share no memory with it.");
  }
  bool is_good = true;
  {
    nb::gil_scoped_release release;
    is_good = choice.rows(positions.data<const int64_t>(), out.data<int64_t>(), positions.size(0));
  }
  if (!is_good) raise_index_error("a position is not one of the chosen rows.");
}

void run_span(const Choice& choice, int64_t first, nb::handle out_object) {
  const Buffer out(out_object, "out", Element::kInt64, 1, Access::kWrite);
  bool is_good = true;
  {
    nb::gil_scoped_release release;
    is_good = choice.span(first, out.size(0), out.data<int64_t>());
  }
  if (!is_good) raise_index_error("a position is not one of the chosen rows.");
}

}  // namespace

void bind_choose(nb::module_& m) {
  nb::class_<Choice>(m, "Choice")
      .def("rows", &run, nb::arg("positions"), nb::arg("out"))
      .def("span", &run_span, nb::arg("first"), nb::arg("out"));
  nb::class_<Dealt, Choice>(m, "Dealt")
      .def(nb::init<uint64_t, int64_t, nb::handle, nb::handle, nb::handle>(), nb::arg("key"), nb::arg("num_runs"),
           nb::arg("places"), nb::arg("firsts"), nb::arg("tail"));
  nb::class_<Marked, Choice>(m, "Marked").def(nb::init<nb::handle, nb::handle>(), nb::arg("words"), nb::arg("ranks"));
}

}  // namespace penstock
