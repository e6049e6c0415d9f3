// A block in one call: the order of its rows, and the rows of all of its columns. What stands between two such calls is
// what a block costs besides its bytes.
#include "route.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace penstock {
namespace {

// Row numbers are made and used so many at a time: few enough to stay in a core's cache, and many, so that one
// narrow column after the other is gathered from memory that stays there, too.
constexpr int64_t kRowsAtOnce = 8192;

}  // namespace

int64_t nanoseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Route::Route(nb::sequence tables, nb::sequence steps) {
  for (nb::handle table : tables) {
    tables_.push_back(std::make_unique<Buffer>(table, "a table", Element::kUint8, 2, Access::kRead));
  }
  if (tables_.empty()) raise_value_error("a route needs at least one table.");
  for (nb::handle one : steps) {
    const auto step = nb::cast<nb::tuple>(one);
    if (step.size() != 4) raise_value_error("a step is (scale, offset, num_rows, keys or a choice).");
    Step made{nb::cast<int64_t>(step[0]), nb::cast<int64_t>(step[1]), nb::cast<int64_t>(step[2]), {}, nullptr, {}};
    if (nb::isinstance<Choice>(step[3])) {
      made.owner = nb::borrow(step[3]);
      made.choice = nb::cast<const Choice*>(step[3]);
    } else if (!step[3].is_none()) {
      const Buffer keys(step[3], "keys", Element::kUint64, 1, Access::kRead);
      check_rounds(keys.size(0));
      if (made.num_rows < 1 || made.num_rows > kMaxRows) {
        raise_value_error("num_rows must be between 1 and 2**62, got " + std::to_string(made.num_rows) + ".");
      }
      made.keys.assign(keys.data<const uint64_t>(), keys.data<const uint64_t>() + keys.size(0));
    }
    if (made.keys.empty() && made.choice == nullptr && made.scale == 1 && steps_.empty()) {
      // Numbers that only move on are added once.
      if (__builtin_add_overflow(offset_, made.offset, &offset_)) raise_value_error("an offset is too large.");
      continue;
    }
    is_in_order_ = false;
    steps_.push_back(std::move(made));
  }
}

bool Route::rows(int64_t start, int64_t count, int64_t* out) const {
  int64_t first = 0;
  int64_t last = 0;
  if (__builtin_add_overflow(start, offset_, &first) || __builtin_add_overflow(first, count, &last)) return false;
  for (int64_t i = 0; i < count; ++i) out[i] = first + i;
  for (const Step& step : steps_) {
    if (step.scale != 1 || step.offset != 0) {
      bool is_over = false;
      for (int64_t i = 0; i < count; ++i) {
        is_over |= __builtin_mul_overflow(out[i], step.scale, &out[i]);
        is_over |= __builtin_add_overflow(out[i], step.offset, &out[i]);
      }
      if (is_over) return false;
    }
    if (step.choice != nullptr && !step.choice->rows(out, out, count)) return false;
    if (step.keys.empty()) continue;
    const Permutation permutation(static_cast<uint64_t>(step.num_rows), step.keys.data(),
                                  static_cast<int64_t>(step.keys.size()));
    if (permute_all(permutation, out, out, count) >= 0) return false;
  }
  return true;
}

bool Work::run() {
  const int64_t on_core = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  int64_t slot = 0;
  bool is_good = true;
  for (const Part& part : parts) {
    is_good = is_good && run_part(part, slot);
    slot += part.count;
  }
  core_ns = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - on_core;
  return is_good;
}

bool Work::run_part(const Part& part, int64_t first_slot) {
  const Route& route = *part.route;
  int64_t end = 0;
  if (__builtin_add_overflow(part.start, part.count, &end)) return false;
  int64_t before = nanoseconds(CLOCK_MONOTONIC);
  if (route.is_in_order()) {
    const bool is_good = copy_in_order(route, part.start, part.count, first_slot);
    gather_ns += nanoseconds(CLOCK_MONOTONIC) - before;
    return is_good;
  }
  std::vector<int64_t> rows(static_cast<size_t>(std::min(part.count, kRowsAtOnce)));
  for (int64_t done = 0; done < part.count; done += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, part.count - done);
    if (!route.rows(part.start + done, count, rows.data())) return false;
    const int64_t ordered = nanoseconds(CLOCK_MONOTONIC);
    if (!gather(route, rows.data(), count, first_slot + done)) return false;
    const int64_t after = nanoseconds(CLOCK_MONOTONIC);
    order_ns += ordered - before;
    gather_ns += after - ordered;
    before = after;
  }
  return true;
}

bool Work::gather(const Route& route, const int64_t* rows, int64_t count, int64_t first_slot) const {
  const int64_t group = first_slot / group_rows;
  // The rows that are left of a group that an earlier call began, then whole groups.
  const int64_t begun = first_slot % group_rows;
  const int64_t head = begun == 0 ? 0 : std::min(count, group_rows - begun);
  for (size_t i = 0; i < columns.size(); ++i) {
    const Buffer& table = *route.tables()[i];
    const int64_t nbytes = table.size(1);
    if (nbytes == 0) {
      const int64_t limit = table.size(0);
      if (std::any_of(rows, rows + count, [limit](int64_t row) { return row < 0 || row >= limit; })) return false;
      continue;
    }
    uint8_t* out = columns[i].out + group * columns[i].group_stride;
    Gather job{table.data<const uint8_t>(), table.size(0),           table.stride(0), nbytes, out + begun * nbytes, 1,
               group_rows - begun,          columns[i].group_stride, nbytes};
    if (head > 0 && job.run(rows, nullptr, head).problem != Misplaced::kNone) return false;
    if (count == head) continue;
    job.out = begun == 0 ? out : out + columns[i].group_stride;
    job.group_rows = group_rows;
    job.groups = num_groups - group;
    if (job.run(rows + head, nullptr, count - head).problem != Misplaced::kNone) return false;
  }
  return true;
}

bool Work::copy_in_order(const Route& route, int64_t start, int64_t count, int64_t first_slot) const {
  int64_t first = 0;
  if (__builtin_add_overflow(start, route.offset(), &first)) return false;
  for (size_t i = 0; i < columns.size(); ++i) {
    const Buffer& table = *route.tables()[i];
    const int64_t nbytes = table.size(1);
    if (first < 0 || first > table.size(0) - count) return false;
    for (int64_t done = 0; done < count;) {
      const int64_t slot = first_slot + done;
      const int64_t in_group = slot % group_rows;
      const int64_t run = std::min(count - done, group_rows - in_group);
      uint8_t* to = columns[i].out + slot / group_rows * columns[i].group_stride + in_group * nbytes;
      const uint8_t* from = table.data<const uint8_t>() + (first + done) * table.stride(0);
      if (table.stride(0) == nbytes) {
        std::memcpy(to, from, static_cast<size_t>(run * nbytes));
      } else {
        for (int64_t row = 0; row < run; ++row) {
          std::memcpy(to + row * nbytes, from + row * table.stride(0), static_cast<size_t>(nbytes));
        }
      }
      done += run;
    }
  }
  return true;
}

}  // namespace penstock
