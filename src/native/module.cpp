// penstock._native: what NumPy cannot do at memory speed. One kernel a file; each file has one bind function.
#include <nanobind/nanobind.h>

namespace penstock {
void bind_order(nanobind::module_& m);
void bind_gather(nanobind::module_& m);
void bind_crc32c(nanobind::module_& m);
void bind_tfrecord(nanobind::module_& m);
void bind_fill(nanobind::module_& m);
void bind_read(nanobind::module_& m);
void bind_array_memory(nanobind::module_& m);
void bind_lzf(nanobind::module_& m);
}  // namespace penstock

NB_MODULE(_native, m) {
  // Modules are not unloaded in order when the interpreter ends, and what is left then is no leak.
  nanobind::set_leak_warnings(false);
  m.doc() = "Kernels that run at memory speed, without the interpreter lock.";
  penstock::bind_order(m);
  penstock::bind_gather(m);
  penstock::bind_crc32c(m);
  penstock::bind_tfrecord(m);
  penstock::bind_fill(m);
  penstock::bind_read(m);
  penstock::bind_array_memory(m);
  penstock::bind_lzf(m);
}
