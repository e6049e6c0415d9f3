// What reading and writing Examples from Python share: arrays that NumPy takes over, and columns with slots.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buffer.h"
#include "example.h"

namespace penstock {

// NumPy takes over memory that malloc gave.
template <typename T>
nb::object to_numpy(Growable&& memory, std::vector<size_t> shape) {
  uint8_t* data = memory.release();
  nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(data, shape.size(), shape.data(), owner));
}
template <typename T>
nb::object to_numpy(Growable&& memory) {
  const auto count = static_cast<size_t>(memory.size()) / sizeof(T);
  return to_numpy<T>(std::move(memory), {count});
}
// The memory of all columns of fixed rows, which must agree on the number of slots.
class Slots {
 public:
  Slots(const Plan& plan, const nb::list& outs, Access access, const Buffer* source) {
    if (static_cast<int>(outs.size()) != plan.size()) {
      raise_value_error("there must be an item for each of the " + std::to_string(plan.size()) + " features, got " +
                        std::to_string(outs.size()) + ".");
    }
    for (int i = 0; i < plan.size(); ++i) {
      const FeaturePlan& feature = plan.features()[static_cast<size_t>(i)];
      buffers_.emplace_back();
      if (feature.has_slots) {
        buffers_.back() = std::make_unique<Buffer>(outs[static_cast<size_t>(i)], "out", Element::kUint8, 3, access);
        check(feature, *buffers_.back(), source);
      }
    }
  }

  const Buffer* of(int feature) const { return buffers_[static_cast<size_t>(feature)].get(); }
  bool is_used() const { return groups >= 0; }
  int64_t count() const { return groups * group_rows; }

  int64_t groups = -1;
  int64_t group_rows = 0;

 private:
  void check(const FeaturePlan& feature, const Buffer& out, const Buffer* source) {
    const std::string name = "out of feature '" + feature.name + "'";
    const int64_t nbytes = feature.count * feature.width;
    if (out.size(2) != nbytes) {
      raise_value_error(name + " must have rows of " + std::to_string(nbytes) + " bytes, got " +
                        std::to_string(out.size(2)) + ".");
    }
    if (is_used() && (out.size(0) != groups || out.size(1) != group_rows)) {
      raise_value_error(name + " must have as many groups and rows as the others, " + std::to_string(groups) + " x " +
                        std::to_string(group_rows) + ", got " + std::to_string(out.size(0)) + " x " +
                        std::to_string(out.size(1)) + ".");
    }
    groups = out.size(0);
    group_rows = out.size(1);
    int64_t total = 0;
    if (__builtin_mul_overflow(groups, group_rows, &total)) raise_value_error(name + " has more than 2**63 slots.");
    if (source != nullptr && may_share_memory(*source, out)) {
      raise_value_error(name + " must share no memory with buffer.");
    }
  }

  std::vector<std::unique_ptr<Buffer>> buffers_;
};

void bind_example_encode(nb::module_& m);

}  // namespace penstock
