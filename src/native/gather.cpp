// Rows from anywhere into the places of a block. The rows lie far apart, so the time is the memory's latency:
// asking for rows some way ahead of the copy hides most of it.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "buffer.h"
#include "gather.h"

namespace penstock {
namespace {

void gather(nb::handle source_object, nb::handle rows_object, nb::handle out_object, nb::handle at_object,
            nb::handle rest_object) {
  const Buffer source(source_object, "source", Element::kUint8, 2, Access::kRead);
  const Buffer rows(rows_object, "rows", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 3, Access::kWrite);
  const int64_t count = rows.size(0);
  Gather job{source.data<const uint8_t>(),
             source.size(0),
             source.stride(0),
             source.size(1),
             out.data<uint8_t>(),
             out.size(0),
             out.size(1),
             out.stride(0),
             out.stride(1)};
  check_slots(out, job.row_nbytes);
  if (may_share_memory(source, out)) raise_value_error("out must share no memory with source.");
  std::optional<Buffer> rest;
  if (!rest_object.is_none()) {
    rest.emplace(rest_object, "rest", Element::kUint8, 2, Access::kRead);
    rest->require_size(1, job.row_nbytes, "source");
    if (job.source_rows < 2) job.source_stride = rest->stride(0);  // The stride of one row means nothing.
    if (rest->size(0) > 1 && rest->stride(0) != job.source_stride) {
      raise_value_error("rest must have rows as far apart as source.");
    }
    if (may_share_memory(*rest, out)) raise_value_error("out must share no memory with rest.");
    job.first_rows = job.source_rows;
    job.rest = rest->data<const uint8_t>();
    job.source_rows += rest->size(0);
  }

  Outcome outcome;
  const int64_t slots = job.groups * job.group_rows;
  if (at_object.is_none()) {
    if (count > slots) {
      raise_value_error("out must have a slot for each row: got " + std::to_string(count) + " rows for " +
                        std::to_string(slots) + " slots.");
    }
    nb::gil_scoped_release release;
    outcome = job.run(rows.data<const int64_t>(), nullptr, count);
  } else {
    const Buffer at(at_object, "at", Element::kInt64, 1, Access::kRead);
    at.require_size(0, count, "rows");
    nb::gil_scoped_release release;
    outcome = job.run(rows.data<const int64_t>(), at.data<const int64_t>(), count);
  }
  if (outcome.problem != Misplaced::kNone) {
    const bool is_row = outcome.problem == Misplaced::kRow;
    raise_index_error(std::string(is_row ? "rows[" : "at[") + std::to_string(outcome.index) + "] must be in [0, " +
                      std::to_string(is_row ? job.source_rows : slots) + "), got " + std::to_string(outcome.value) +
                      ".");
  }
}

struct Span {
  int64_t start;
  int64_t length;
  int64_t out_start;
};

struct SpanOutcome {
  const char* problem = nullptr;  // the name of the array that holds the bad value
  int64_t index = 0;
  Span span{};
};

SpanOutcome copy_spans(const Buffer& source, const Buffer& out, const int64_t* starts, const int64_t* lengths,
                       const int64_t* out_starts, int64_t count) {
  constexpr int64_t kSpanAhead = 8;
  const auto* from = source.data<const uint8_t>();
  auto* to = out.data<uint8_t>();
  const int64_t source_nbytes = source.size(0);
  const int64_t out_nbytes = out.size(0);
  for (int64_t i = 0; i < count; ++i) {
    if (i + kSpanAhead < count) {
      const int64_t ahead = starts[i + kSpanAhead];
      if (ahead >= 0 && ahead < source_nbytes) prefetch(from + ahead, std::min(kLine, source_nbytes - ahead));
    }
    const Span span{starts[i], lengths[i], out_starts[i]};
    if (span.length < 0) return {"lengths", i, span};
    // By subtraction: a sum could overflow.
    if (span.start < 0 || span.start > source_nbytes - span.length) return {"starts", i, span};
    if (span.out_start < 0 || span.out_start > out_nbytes - span.length) return {"out_starts", i, span};
    if (span.length > 0) std::memcpy(to + span.out_start, from + span.start, static_cast<size_t>(span.length));
  }
  return {};
}

void gather_spans(nb::handle source_object, nb::handle starts_object, nb::handle lengths_object, nb::handle out_object,
                  nb::handle out_starts_object) {
  const Buffer source(source_object, "source", Element::kUint8, 1, Access::kRead);
  const Buffer starts(starts_object, "starts", Element::kInt64, 1, Access::kRead);
  const Buffer lengths(lengths_object, "lengths", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  const Buffer out_starts(out_starts_object, "out_starts", Element::kInt64, 1, Access::kRead);
  const int64_t count = starts.size(0);
  lengths.require_size(0, count, "starts");
  out_starts.require_size(0, count, "starts");
  if (may_share_memory(source, out)) raise_value_error("out must share no memory with source.");

  SpanOutcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = copy_spans(source, out, starts.data<const int64_t>(), lengths.data<const int64_t>(),
                         out_starts.data<const int64_t>(), count);
  }
  if (outcome.problem == nullptr) return;
  const std::string where = std::string(outcome.problem) + "[" + std::to_string(outcome.index) + "]";
  const auto& span = outcome.span;
  if (span.length < 0) {
    raise_value_error(where + " must be at least 0, got " + std::to_string(span.length) + ".");
  }
  const bool is_source = *outcome.problem == 's';
  raise_index_error(where + " must leave room for " + std::to_string(span.length) + " bytes in the " +
                    std::to_string((is_source ? source : out).size(0)) + " of " + (is_source ? "source" : "out") +
                    ", got " + std::to_string(is_source ? span.start : span.out_start) + ".");
}

}  // namespace

void bind_gather(nb::module_& m) {
  m.def("gather", &gather, nb::arg("source"), nb::arg("rows"), nb::arg("out"), nb::arg("at") = nb::none(),
        nb::arg("rest") = nb::none(),
        "Copy source[rows[j]] to slot j, or at[j], of out, whose slots are the rows of its groups one after another.");
  m.def("gather_spans", &gather_spans, nb::arg("source"), nb::arg("starts"), nb::arg("lengths"), nb::arg("out"),
        nb::arg("out_starts"), "Copy lengths[j] bytes from source[starts[j]:] to out[out_starts[j]:], for each j.");
}

}  // namespace penstock
