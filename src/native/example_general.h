// Decoding one record of any layout. The fast path must agree with it.
#pragma once

#include <vector>

#include "example.h"
#include "example_rows.h"

namespace penstock {

// Writes the row of a record. On a fault, says which feature it is about, or -1. `entries` is memory to work in.
bool decode_general(const Plan& plan, Reader payload, std::vector<Reader>& entries, Rows& rows, int& feature,
                    Problem& problem);

}  // namespace penstock
