// Rows of arrays in memory that are found by arithmetic alone, and the work of reading a block of them.
#pragma once

#include <time.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "buffer.h"
#include "choose.h"
#include "gather.h"
#include "order.h"

namespace penstock {

// One rewriting of row numbers: scale * row + offset, then its image under a permutation or a choice, if there is one.
struct Step {
  int64_t scale;
  int64_t offset;
  int64_t num_rows;  // of the permutation
  std::vector<uint64_t> keys;
  const Choice* choice = nullptr;
  nb::object owner;  // of the choice
};

// Which row of the tables each row is. It keeps the tables: make it and drop it with the interpreter lock.
class Route {
 public:
  Route(nb::sequence tables, nb::sequence steps);
  Route(const Route&) = delete;
  Route& operator=(const Route&) = delete;

  const std::vector<std::unique_ptr<Buffer>>& tables() const { return tables_; }
  // Whether rows are those of the tables, one after the other.
  bool is_in_order() const { return is_in_order_; }
  int64_t offset() const { return offset_; }

  // Writes the numbers that rows start, start + 1, ... have in the tables to out. Returns false if one has none.
  bool rows(int64_t start, int64_t count, int64_t* out) const;

 private:
  std::vector<std::unique_ptr<Buffer>> tables_;
  std::vector<Step> steps_;
  bool is_in_order_ = true;
  int64_t offset_ = 0;
};

// Work that needs no interpreter lock, and how long it took.
class Runnable {
 public:
  Runnable() = default;
  virtual ~Runnable() = default;
  Runnable(const Runnable&) = delete;
  Runnable& operator=(const Runnable&) = delete;

  // False if it could not be done.
  virtual bool run() = 0;

  int64_t order_ns = 0;
  int64_t gather_ns = 0;
  int64_t core_ns = 0;
};

int64_t nanoseconds(clockid_t clock);

// Reading a block: rows of one or more routes, one after the other, into columns that share one piece of memory.
class Work : public Runnable {
 public:
  struct Part {
    const Route* route;
    int64_t start;
    int64_t count;
  };
  struct Column {
    uint8_t* out;
    int64_t group_stride;
  };

  std::vector<Part> parts;
  std::vector<Column> columns;
  int64_t group_rows = 1;  // Rows lie in groups of so many, one group after the other, each after its stride.
  int64_t num_groups = 0;

  // False if a row has no place in the tables.
  bool run() override;

 private:
  bool run_part(const Part& part, int64_t first_slot);
  bool gather(const Route& route, const int64_t* rows, int64_t count, int64_t first_slot) const;
  bool copy_in_order(const Route& route, int64_t start, int64_t count, int64_t first_slot) const;
};

}  // namespace penstock
