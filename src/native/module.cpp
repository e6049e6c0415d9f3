// penstock._native: what NumPy cannot do at memory speed. One kernel a file; each file has one bind function.
#include <nanobind/nanobind.h>

#include "system.h"

namespace penstock {
void bind_order(nanobind::module_& m);
void bind_choose(nanobind::module_& m);
void bind_moments(nanobind::module_& m);
void bind_jobs(nanobind::module_& m);
void bind_gather(nanobind::module_& m);
void bind_crc32c(nanobind::module_& m);
void bind_tfrecord(nanobind::module_& m);
void bind_sequence_lists(nanobind::module_& m);
void bind_fill(nanobind::module_& m);
void bind_read(nanobind::module_& m);
void bind_read_rows(nanobind::module_& m);
void bind_array_memory(nanobind::module_& m);
void bind_lzf(nanobind::module_& m);
void bind_resize(nanobind::module_& m);
void bind_png(nanobind::module_& m);
void bind_jpeg(nanobind::module_& m);
void bind_array_table(nanobind::module_& m);
void bind_inflate(nanobind::module_& m);
void bind_hdf5_filters(nanobind::module_& m);
void bind_lines(nanobind::module_& m);
void bind_line_copy(nanobind::module_& m);
void bind_text_objects(nanobind::module_& m);
void bind_first_fit(nanobind::module_& m);
void bind_json_rows(nanobind::module_& m);
void bind_element_iterator(nanobind::module_& m);
}  // namespace penstock

NB_MODULE(_native, m) {
  // Modules are not unloaded in order when the interpreter ends, and what is left then is no leak.
  nanobind::set_leak_warnings(false);
  m.doc() = "Kernels that run at memory speed, without the interpreter lock.";
  m.attr("is_portable") = penstock::kIsPortable;
  penstock::bind_order(m);
  penstock::bind_gather(m);
  penstock::bind_choose(m);
  penstock::bind_moments(m);
  penstock::bind_jobs(m);
  penstock::bind_crc32c(m);
  penstock::bind_tfrecord(m);
  penstock::bind_sequence_lists(m);
  penstock::bind_fill(m);
  penstock::bind_read(m);
  penstock::bind_read_rows(m);
  penstock::bind_array_memory(m);
  penstock::bind_lzf(m);
  penstock::bind_resize(m);
  penstock::bind_png(m);
  penstock::bind_jpeg(m);
  penstock::bind_array_table(m);
  penstock::bind_inflate(m);
  penstock::bind_hdf5_filters(m);
  penstock::bind_lines(m);
  penstock::bind_line_copy(m);
  penstock::bind_text_objects(m);
  penstock::bind_first_fit(m);
  penstock::bind_json_rows(m);
  penstock::bind_element_iterator(m);
}
