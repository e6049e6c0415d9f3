// Columns to tf.train.Example records: the way back, byte for byte what protobuf's deterministic serialisation makes.
#pragma once

#include <cstdint>
#include <vector>

#include "example.h"

namespace penstock {

// The rows of one feature, as decode_records leaves them. Nothing in it is taken on trust.
struct EncodeColumn {
  // Rows of one size.
  const uint8_t* rows = nullptr;
  int64_t group_stride = 0;
  int64_t slot_stride = 0;
  // All other rows.
  const uint8_t* values = nullptr;
  int64_t values_nbytes = 0;
  const int64_t* offsets = nullptr;
  int64_t num_offsets = 0;
  const int64_t* row_lengths = nullptr;
  const int64_t* shapes = nullptr;
};

struct EncodeJob {
  const Plan* plan = nullptr;
  std::vector<EncodeColumn> columns;
  int64_t count = 0;
  int64_t group_rows = 0;
  bool is_framed = true;
};

// Appends the records to `out`, and to `offsets` (int64) where each starts and where the last ends. Throws
// std::invalid_argument, naming row and feature, for rows that no record can hold.
void encode_records(const EncodeJob& job, Growable& out, Growable& offsets);

}  // namespace penstock
