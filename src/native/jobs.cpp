// Blocks made by threads that need no interpreter lock to go on: a queue of work, and threads that serve it. Calls of
// Python functions stand in the same queue: a thread that comes to one returns to Python, and makes it there.
//
// A thread that has to take the interpreter lock between two blocks waits for the consumer, which holds it. Here it
// takes the next piece of work from a native queue instead, and only whoever submits and waits is in Python.
#include <nanobind/stl/tuple.h>
#include <pthread.h>

#include <string>

#include "jobs.h"

namespace penstock {
namespace {

class Jobs {
 public:
  void submit(Job& job) { job.submit(shared_); }

  void serve() {
    const std::shared_ptr<Shared> shared = shared_;  // This object may be dropped meanwhile.
    if (shared->is_inherited()) raise_value_error("these jobs belong to the parent of this process.");
    nb::gil_scoped_release release;
    std::unique_lock<std::mutex> lock(shared->mutex);
    for (;;) {
      shared->available.wait(lock, [&shared] { return shared->is_stopped || !shared->queue.empty(); });
      if (shared->is_stopped) return;
      Task* task = shared->queue.front();
      shared->queue.pop_front();
      if (task == nullptr) return;
      shared->run(task, lock);
    }
  }

  void call() {
    if (shared_->is_inherited()) return;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->queue.push_back(nullptr);
    shared_->available.notify_one();
  }

  void stop() {
    if (shared_->is_inherited()) return;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->is_stopped = true;
    shared_->available.notify_all();
  }

  std::pair<double, double> seconds() const {
    if (shared_->is_inherited()) return {0.0, 0.0};
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    return {1e-9 * static_cast<double>(shared_->busy_ns), 1e-9 * static_cast<double>(shared_->core_ns)};
  }

 private:
  std::shared_ptr<Shared> shared_ = make_shared_state();
};

}  // namespace

void bind_jobs(nb::module_& m) {
  pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
  nb::class_<Route>(m, "Route", "Rows of tables in memory, found by arithmetic.")
      .def(nb::init<nb::sequence, nb::sequence>(), nb::arg("tables"), nb::arg("steps"));
  nb::class_<Job>(m, "Job", "A block of rows to be read.")
      .def(nb::init<nb::sequence, nb::object, nb::object, int64_t>(), nb::arg("parts"), nb::arg("memory"),
           nb::arg("columns"), nb::arg("group_rows"))
      .def("run", &Job::run, "Read the block, in this thread.")
      .def("wait", &Job::wait, nb::arg("helps") = false,
           "Wait until it was read, or help to; False if `wake` was called before.")
      .def("wake", &Job::wake, "Let whoever waits go on.")
      .def("cancel", &Job::cancel, "Let it not begin; if it has begun, wait for its end.")
      .def_prop_ro("is_done", &Job::is_done)
      .def_prop_ro("is_good", &Job::is_good)
      .def_prop_ro("num_rows", &Job::num_rows)
      .def_prop_ro("times", &Job::times);
  nb::class_<Jobs>(m, "Jobs", "A queue of jobs, and the threads that serve it.")
      .def(nb::init<>())
      .def("submit", &Jobs::submit, nb::arg("job"), "Have a thread read a block.")
      .def("serve", &Jobs::serve, "Read blocks in this thread, until it comes to a call, or all stop.")
      .def("call", &Jobs::call, "Let a thread return from `serve`, when it has come so far.")
      .def("stop", &Jobs::stop, "Let all threads return from `serve`.")
      .def_prop_ro("seconds", [](const Jobs& jobs) {
        const auto [busy, core] = jobs.seconds();
        return nb::make_tuple(busy, core);
      });
}

}  // namespace penstock
