// Packing by first fit: each length goes to the first open bin that has room for it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/stl/tuple.h>

#include "buffer.h"

namespace penstock {
namespace {

struct Bin {
  int64_t number;
  int64_t fill;
};

struct Packed {
  int64_t num_closed = 0;
  int64_t num_bins = 0;
  int64_t bad = -1;  // The first length that no bin could ever hold.
};

Packed pack(const int64_t* lengths, int64_t count, int64_t capacity, int64_t most_bins, std::vector<Bin>& open,
            int64_t* bins, int64_t* offsets, int64_t* closed, int64_t* came) {
  Packed done;
  done.num_bins = static_cast<int64_t>(open.size());
  const auto close = [&](std::vector<Bin>::iterator bin, int64_t after) {
    closed[done.num_closed] = bin->number;
    came[done.num_closed++] = after;
    open.erase(bin);
  };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = lengths[i];
    if (length < 1 || length > capacity) {
      done.bad = i;
      return done;
    }
    auto bin = std::find_if(open.begin(), open.end(), [&](const Bin& one) { return one.fill <= capacity - length; });
    if (bin == open.end()) {
      if (static_cast<int64_t>(open.size()) == most_bins) {
        // The fullest: it has the least room to lose. Of several, the oldest.
        close(std::max_element(open.begin(), open.end(), [](const Bin& a, const Bin& b) { return a.fill < b.fill; }),
              i);
      }
      open.push_back({done.num_bins++, 0});
      bin = open.end() - 1;
    }
    bins[i] = bin->number;
    offsets[i] = bin->fill;
    bin->fill += length;
    if (bin->fill == capacity) close(bin, i + 1);
  }
  return done;
}

std::tuple<int64_t, int64_t> first_fit(nb::handle lengths_object, int64_t capacity, int64_t most_bins,
                                       nb::handle fills_object, nb::handle bins_object, nb::handle offsets_object,
                                       nb::handle closed_object, nb::handle came_object) {
  const Buffer lengths(lengths_object, "lengths", Element::kInt64, 1, Access::kRead);
  const Buffer fills(fills_object, "fills", Element::kInt64, 1, Access::kRead);
  const Buffer bins(bins_object, "bins", Element::kInt64, 1, Access::kWrite);
  const Buffer offsets(offsets_object, "offsets", Element::kInt64, 1, Access::kWrite);
  const Buffer closed(closed_object, "closed", Element::kInt64, 1, Access::kWrite);
  const Buffer came(came_object, "came", Element::kInt64, 1, Access::kWrite);
  const int64_t count = lengths.size(0);
  if (capacity < 1) raise_value_error("capacity must be at least 1, got " + std::to_string(capacity) + ".");
  if (most_bins < 1) raise_value_error("most_bins must be at least 1, got " + std::to_string(most_bins) + ".");
  if (fills.size(0) > most_bins) {
    raise_value_error("fills must have at most " + std::to_string(most_bins) + " bins, got " +
                      std::to_string(fills.size(0)) + ".");
  }
  bins.require_size(0, count, "lengths");
  offsets.require_size(0, count, "lengths");
  closed.require_size(0, 2 * count, "lengths, twice");
  came.require_size(0, 2 * count, "lengths, twice");
  const Buffer* all[] = {&lengths, &fills, &bins, &offsets, &closed, &came};
  for (int a = 2; a < 6; ++a) {
    for (int b = 0; b < a; ++b) {
      if (may_share_memory(*all[a], *all[b])) {
        raise_value_error(std::string(all[a]->name()) + " must share no memory with " + all[b]->name() + ".");
      }
    }
  }
  std::vector<Bin> open;
  for (int64_t bin = 0; bin < fills.size(0); ++bin) {
    const int64_t fill = fills.data<const int64_t>()[bin];
    if (fill < 0 || fill >= capacity) {
      raise_value_error("fills[" + std::to_string(bin) + "] must be from 0 to " + std::to_string(capacity - 1) +
                        ", got " + std::to_string(fill) + ".");
    }
    open.push_back({bin, fill});
  }
  Packed done;
  {
    nb::gil_scoped_release release;
    done = pack(lengths.data<const int64_t>(), count, capacity, most_bins, open, bins.data<int64_t>(),
                offsets.data<int64_t>(), closed.data<int64_t>(), came.data<int64_t>());
  }
  if (done.bad >= 0) {
    raise_value_error("lengths[" + std::to_string(done.bad) + "] must be from 1 to " + std::to_string(capacity) +
                      ", got " + std::to_string(lengths.data<const int64_t>()[done.bad]) + ".");
  }
  return {done.num_closed, done.num_bins};
}

}  // namespace

void bind_first_fit(nb::module_& m) {
  m.def("first_fit", &first_fit, nb::arg("lengths"), nb::arg("capacity"), nb::arg("most_bins"), nb::arg("fills"),
        nb::arg("bins"), nb::arg("offsets"), nb::arg("closed"), nb::arg("came"),
        "Put each length into the first open bin with room for it; return how many bins closed, and how many there "
        "were.");
}

}  // namespace penstock
