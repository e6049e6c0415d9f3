// A piece of work that threads do without the interpreter lock, and the job that Python has of it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "route.h"

namespace penstock {

// How long a wait lasts before it looks for Ctrl-C, which a condition variable does not.
constexpr auto kPatience = std::chrono::milliseconds(50);
// How long a read that is no longer wanted is waited for: a file on another machine may never answer.
constexpr auto kGrace = std::chrono::seconds(5);

enum class State { kNew, kWaiting, kRunning, kDone, kCancelled };

// How often this process was forked off from another: threads of the parent, and what they do, are not here.
inline std::atomic<int64_t> num_forks{0};

// What threads share. A condition a side: whoever serves waits for work, whoever submits waits for its end.
struct Shared {
  std::mutex mutex;
  std::condition_variable available;
  std::condition_variable finished;
  std::deque<struct Task*> queue;  // A null pointer is a call.
  const int64_t born = num_forks;
  bool is_stopped = false;
  int64_t busy_ns = 0;
  int64_t core_ns = 0;

  // In a forked child, a thread of the parent may have left it locked, and to destroy a condition that a thread
  // waited for would wait for that thread: nothing of it is touched there.
  bool is_inherited() const { return born != num_forks; }

  void run(struct Task* task, std::unique_lock<std::mutex>& lock);
};

inline std::shared_ptr<Shared> make_shared_state() {
  return {new Shared, [](Shared* shared) {
            if (!shared->is_inherited()) delete shared;
          }};
}

struct Task {
  std::unique_ptr<Runnable> work;
  State state = State::kNew;
  bool is_good = true;
  bool is_woken = false;
  uint64_t thread = 0;  // Which thread has run it, as Python numbers them; and when.
  std::chrono::steady_clock::time_point began;
  std::chrono::steady_clock::time_point ended;

  // Whatever is thrown must not leave it running for ever: somebody may wait for its end.
  void run() noexcept {
    thread = (uint64_t)pthread_self();  // A number or a pointer, as the system has it.
    began = std::chrono::steady_clock::now();
    try {
      is_good = work->run();
    } catch (...) {
      is_good = false;
    }
    ended = std::chrono::steady_clock::now();
  }
};

// The task was taken from the queue under the lock, which is let go of while it runs.
inline void Shared::run(Task* task, std::unique_lock<std::mutex>& lock) {
  task->state = State::kRunning;
  lock.unlock();
  task->run();
  lock.lock();
  busy_ns += task->work->order_ns + task->work->gather_ns;
  core_ns += task->work->core_ns;
  task->state = State::kDone;
  finished.notify_all();
}

// One block to be read. It keeps what it reads and the memory for as long as they are used.
class Job {
 public:
  // Work that may fail: whoever waits for it asks then. It owns all that it needs.
  Job(std::unique_ptr<Runnable> work, int64_t num_rows)
      : task_(std::make_unique<Task>()), num_rows_(num_rows), may_fail_(true) {
    task_->work = std::move(work);
  }

  // Rows of tables in memory.
  Job(nb::sequence parts, nb::object memory_object, nb::object columns, int64_t group_rows)
      : task_(std::make_unique<Task>()) {
    memory_ = std::make_unique<Buffer>(memory_object, "memory", Element::kUint8, 1, Access::kWrite);
    const Buffer layout(columns, "columns", Element::kInt64, 2, Access::kRead);
    if (layout.size(1) != 2) raise_value_error("columns must have an offset and a stride for each table.");
    if (layout.size(0) > 1 && layout.stride(0) != 16) raise_value_error("columns must be contiguous.");
    if (group_rows < 1) raise_value_error("group_rows must be at least 1, got " + std::to_string(group_rows) + ".");
    int64_t count = 0;
    auto made_work = std::make_unique<Work>();
    Work& work = *made_work;
    task_->work = std::move(made_work);
    for (nb::handle one : parts) {
      const auto part = nb::cast<nb::tuple>(one);
      if (part.size() != 3) raise_value_error("a part is (route, first row, number of rows).");
      const Route& route = nb::cast<const Route&>(part[0]);
      const Work::Part made{&route, nb::cast<int64_t>(part[1]), nb::cast<int64_t>(part[2])};
      if (made.count < 0 || made.count > kMaxRows - count) raise_value_error("a part must have 0 to 2**62 rows.");
      count += made.count;
      check(route, layout);
      routes_.push_back(nb::borrow(part[0]));
      work.parts.push_back(made);
    }
    work.group_rows = group_rows;
    work.num_groups = count == 0 ? 0 : (count - 1) / group_rows + 1;
    for (int64_t i = 0; i < layout.size(0); ++i) {
      // Copied, then checked: the array belongs to Python, and another thread may write to it.
      const int64_t offset = layout.data<const int64_t>()[i * 2];
      const int64_t stride = layout.data<const int64_t>()[i * 2 + 1];
      check_place(offset, stride, row_nbytes(work, static_cast<size_t>(i)), work, memory_->size(0));
      work.columns.push_back({memory_->data<uint8_t>() + offset, stride});
    }
    num_rows_ = count;
  }
  ~Job() {
    cancel();
    if (shared_ && shared_->is_inherited()) (void)task_.release();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void run() {
    // With the interpreter lock, as `submit`: whoever comes first has the job.
    if (task_->state != State::kNew) raise_value_error("a job can be run or submitted once.");
    task_->state = State::kRunning;
    {
      nb::gil_scoped_release release;
      task_->run();
    }
    task_->state = State::kDone;
    raise_if_bad();
  }

  bool is_done() const {
    if (!shared_ || shared_->is_inherited()) return task_->state == State::kDone;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    return task_->state == State::kDone;
  }

  // Returns whether it is done; false if somebody woke it. Whoever helps does what waits in the queue meanwhile.
  bool wait(bool helps) {
    if (!shared_) return task_->state == State::kDone;
    for (;;) {
      if (shared_->is_inherited()) return task_->state == State::kDone;
      bool is_over = false;
      {
        nb::gil_scoped_release release;
        std::unique_lock<std::mutex> lock(shared_->mutex);
        if (helps) help(*shared_, lock);
        is_over = shared_->finished.wait_for(lock, kPatience, [this] {
          return task_->state == State::kDone || task_->state == State::kCancelled || task_->is_woken;
        });
      }
      if (is_over) break;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    if (!is_done()) return false;
    raise_if_bad();
    return true;
  }

  void wake() {
    if (!shared_ || shared_->is_inherited()) return;
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    task_->is_woken = true;
    shared_->finished.notify_all();
  }

  // Work that has not begun never does; work that has is waited for, as it writes to memory that is kept here.
  void cancel() {
    if (!shared_ || shared_->is_inherited()) return;
    // The interpreter lock stays where it is: threads that serve don't need it.
    std::unique_lock<std::mutex> lock(shared_->mutex);
    if (task_->state == State::kWaiting) {
      for (auto at = shared_->queue.begin(); at != shared_->queue.end(); ++at) {
        if (*at != task_.get()) continue;
        shared_->queue.erase(at);
        break;
      }
      task_->state = State::kCancelled;
      shared_->finished.notify_all();
    }
    const auto is_over = [this] { return task_->state != State::kRunning; };
    if (!may_fail_) {
      shared_->finished.wait(lock, is_over);
    } else if (!shared_->finished.wait_for(lock, kGrace, is_over)) {
      (void)task_.release();  // It goes on writing to memory that must then never be given back.
      task_ = std::make_unique<Task>();
      task_->state = State::kCancelled;
    }
  }

  void submit(std::shared_ptr<Shared> shared) {
    if (task_->state != State::kNew) raise_value_error("a job can be run or submitted once.");
    if (shared->is_inherited()) raise_value_error("these jobs belong to the parent of this process.");
    shared_ = std::move(shared);
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    task_->state = State::kWaiting;
    shared_->queue.push_back(task_.get());
    shared_->available.notify_one();
  }

  int64_t num_rows() const { return num_rows_; }
  // Whether all was done as it should be; only of work that may fail, once it is done.
  bool is_good() const { return is_done() && task_->is_good; }
  // Which thread ran it, when that began by Python's perf_counter, how long it took, and what of that it took to find
  // the rows and to copy them. Zeros until it is done: meanwhile a thread adds to them.
  std::tuple<uint64_t, double, double, double, double> times() const {
    if (!is_done()) return {0, 0.0, 0.0, 0.0, 0.0};
    using Seconds = std::chrono::duration<double>;
    const double began = Seconds(task_->began.time_since_epoch()).count();
    const double order = 1e-9 * static_cast<double>(task_->work->order_ns);
    const double gather = 1e-9 * static_cast<double>(task_->work->gather_ns);
    return {task_->thread, began, Seconds(task_->ended - task_->began).count(), order, gather};
  }

 private:
  void check(const Route& route, const Buffer& layout) const {
    if (static_cast<int64_t>(route.tables().size()) != layout.size(0)) {
      raise_value_error("columns must have an offset and a stride for each table.");
    }
    for (const auto& table : route.tables()) {
      if (may_share_memory(*table, *memory_)) raise_value_error("memory must be apart from the tables.");
    }
  }

  static void check_place(int64_t offset, int64_t stride, int64_t nbytes, const Work& work, int64_t size) {
    int64_t group = 0;
    int64_t all = 0;
    if (__builtin_mul_overflow(work.group_rows, nbytes, &group) ||
        __builtin_mul_overflow(std::max<int64_t>(0, work.num_groups - 1), stride, &all) ||
        __builtin_add_overflow(all, group, &all) || offset < 0 || stride < 0 ||
        (work.num_groups > 1 && stride < group) || offset > size || (work.num_groups > 0 && all > size - offset)) {
      raise_value_error("memory has no room for " + std::to_string(work.num_groups) + " groups of " +
                        std::to_string(group) + " bytes at " + std::to_string(offset) + ".");
    }
  }

  // All parts fill the same columns.
  static int64_t row_nbytes(const Work& work, size_t column) {
    int64_t nbytes = 0;
    for (const Work::Part& part : work.parts) {
      const int64_t own = part.route->tables()[column]->size(1);
      if (&part != &work.parts.front() && own != nbytes) {
        raise_value_error("all parts must have rows of the same sizes.");
      }
      nbytes = own;
    }
    return nbytes;
  }

  // Does what is first in the queue until this job is done. Whoever waits has a core, and needs not be woken: on two
  // cores, rows of 48 KB come 1.1 times as fast.
  void help(Shared& shared, std::unique_lock<std::mutex>& lock) const {
    while ((task_->state == State::kWaiting || task_->state == State::kRunning) && !task_->is_woken &&
           !shared.is_stopped && !shared.queue.empty() && shared.queue.front() != nullptr) {
      Task* task = shared.queue.front();
      shared.queue.pop_front();
      shared.run(task, lock);
    }
  }

  void raise_if_bad() const {
    if (!task_->is_good && !may_fail_)
      raise_index_error("a row is outside the tables, or there was no memory for row numbers.");
  }

  std::unique_ptr<Buffer> memory_;
  std::vector<nb::object> routes_;
  std::unique_ptr<Task> task_;
  std::shared_ptr<Shared> shared_;
  int64_t num_rows_ = 0;
  const bool may_fail_ = false;
};

}  // namespace penstock
