// Writing the values of one record into the columns.
#pragma once

#include <cstdint>
#include <vector>

#include "example.h"

namespace penstock {

// All functions return false, with the problem described, if the values are not what the plan asks for. Variable
// columns may then hold part of the row, until `restart`.
class Rows {
 public:
  Rows(const Plan& plan, std::vector<Column>& columns);

  // Begins the row of a record, which is `nbytes` long, in a slot.
  void begin(int64_t group, int64_t in_group, int64_t nbytes) {
    group_ = group;
    in_group_ = in_group;
    record_nbytes_ = nbytes;
    if (!variable_.empty()) mark();
  }
  // Takes back what was written since.
  void restart();

  bool put_floats(int feature, Reader packed, Problem& problem);
  bool put_ints(int feature, Reader packed, Problem& problem);
  bool put_tensor(int feature, Reader message, Tensor& tensor, Problem& problem);
  bool put_missing(int feature, Problem& problem);
  // An empty row, or one of zeros.
  void put_nothing(int feature);

  // For values that come in parts: `claim` their number, then write each.
  bool claim(int feature, int64_t count, const uint8_t* at, Problem& problem);
  bool put_part(const Reader& floats, Problem& problem);
  bool put_part(uint64_t value, const uint8_t* at, Problem& problem);
  bool put_string(int feature, const Reader& item, Problem& problem);
  // What was claimed and written is a row.
  void finish(int feature);

  uint8_t* slot(int feature) const {
    const Column& column = columns_[static_cast<size_t>(feature)];
    return column.rows + group_ * column.group_stride + in_group_ * column.slot_stride;
  }

 private:
  struct Mark {
    int feature;
    int64_t values, offsets, row_lengths, shapes;
  };
  const FeaturePlan& plan(int feature) const { return features_[static_cast<size_t>(feature)]; }
  Column& column(int feature) { return columns_[static_cast<size_t>(feature)]; }
  void mark();
  bool put_strings(int feature, const Tensor& tensor, Problem& problem);

  const std::vector<FeaturePlan>& features_;
  std::vector<Column>& columns_;
  std::vector<Mark> variable_;
  int64_t group_ = 0;
  int64_t in_group_ = 0;
  int64_t record_nbytes_ = 0;
  // Of the values that come in parts.
  Type type_{};
  uint8_t* out_ = nullptr;
  int64_t claimed_ = 0;
  int64_t written_ = 0;
};

}  // namespace penstock
