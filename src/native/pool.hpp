// Threads that share the steps of a run. They live as long as one call, so that a process may be
// forked between calls.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

#include "job.hpp"

namespace sottovoce {

struct Pool {
  explicit Pool(int size);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  void run(i64 count, Task task, void* context);
  int size() const { return int(threads_.size()) + 1; }

 private:
  void work(int thread);
  void take(int thread);

  std::vector<std::thread> threads_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  i64 count_ = 0;
  bool over_ = false;
  alignas(64) std::atomic<i64> next_{0};
  alignas(64) std::atomic<i64> turn_{0};
  alignas(64) std::atomic<int> busy_{0};
};

}  // namespace sottovoce
