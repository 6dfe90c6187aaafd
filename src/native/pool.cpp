#include "pool.hpp"

namespace sottovoce {

namespace {

constexpr int EVALUATIONS = 2000;  // before a thread that waits offers its processor to others

// A step takes less time than the system needs to wake a thread: wait on the spot for a while.
template <class F>
void wait_until(F ready) {
  for (int looks = 0; !ready(); looks++)
    if (looks > EVALUATIONS) std::this_thread::yield();
}

}  // namespace

Pool::Pool(int size) {
  for (int thread = 1; thread < size; thread++)
    threads_.emplace_back([this, thread] { work(thread); });
}

Pool::~Pool() {
  over_ = true;
  turn_.fetch_add(1, std::memory_order_release);
  for (auto& thread : threads_) thread.join();
}

void Pool::take(int thread) {
  for (i64 index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < count_;)
    task_(context_, index, thread);
}

void Pool::work(int thread) {
  for (i64 seen = 0;;) {
    wait_until([&] { return turn_.load(std::memory_order_acquire) != seen; });
    seen++;
    if (over_) return;
    take(thread);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

void Pool::run(i64 count, Task task, void* context) {
  task_ = task, context_ = context, count_ = count;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(int(threads_.size()), std::memory_order_relaxed);
  turn_.fetch_add(1, std::memory_order_release);
  take(0);
  wait_until([&] { return busy_.load(std::memory_order_acquire) == 0; });
}

void in_parallel(Pool* pool, i64 count, Task task, void* context) {
  if (pool && count > 1) return pool->run(count, task, context);
  for (i64 index = 0; index < count; index++) task(context, index, 0);
}

}  // namespace sottovoce
