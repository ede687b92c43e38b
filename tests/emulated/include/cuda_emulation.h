#pragma once

// CUDA as far as the kernels of native/cuda use it, on a CPU: the threads of a block are fibers, which run one after
// another from barrier to barrier, in another order each time. What is compiled with this in front registers its
// kernels for CPUs, in place of those of the wheel.

#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <setjmp.h>
#include <ucontext.h>

// A stub's kernel for CPUs is nobody else's to replace.
#define private public
#include <ATen/native/DispatchStub.h>
#undef private

#define __device__
#define __global__
#define __host__
#define __shared__ static thread_local
#define GPU_LAMBDA

struct dim3 {
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned count() const {
    return x * y * z;
  }
  dim3 at(unsigned i) const {
    return {i % x, i / x % y, i / x / y};
  }
  unsigned x, y, z;
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

// Of each kernel, by its name.
inline std::map<std::string, int> launches;

class Block {
 public:
  explicit Block(std::function<void()> kernel) : kernel_(std::move(kernel)), fibers_(fibers(blockDim.count())) {}

  void run() {
    is_running_ = true;
    std::vector<unsigned> order(blockDim.count());
    std::iota(order.begin(), order.end(), 0);
    for (const unsigned i : order) {
      fibers_[i].state = State::fresh;
    }
    for (size_t done = 0; done == 0;) {
      std::shuffle(order.begin(), order.end(), random_);
      for (const unsigned i : order) {
        resume(i);
        done += fibers_[i].state == State::done;
      }
      TORCH_CHECK(done == 0 || done == order.size(), "__syncthreads() is not reached by every thread of the block");
    }
    is_running_ = false;
  }

  // A kernel that has no barrier needs no fibers.
  void run_at_once() {
    current = this;
    for (unsigned i = 0; i < blockDim.count(); ++i) {
      threadIdx = blockDim.at(i);
      kernel_();
    }
  }

  bool has_barriers() const {
    return has_barriers_;
  }

  void wait() {
    TORCH_CHECK(is_running_, "__syncthreads() is reached by some blocks and not by the first");
    has_barriers_ = true;
    if (_setjmp(fibers_[active_].position) == 0) {
      _longjmp(scheduler_, 1);
    }
  }

  inline static thread_local Block* current = nullptr;

 private:
  static constexpr size_t stack_size = 1 << 16;

  enum class State { fresh, waiting, done };

  // A context is what a fiber starts from; between barriers it jumps, which takes no system call.
  struct Fiber {
    Fiber() : stack(new char[stack_size]) {}

    ucontext_t context;
    jmp_buf position;
    std::unique_ptr<char[]> stack;
    State state = State::fresh;
  };

  // Those of earlier launches, whose stacks are in memory already, and more if need be.
  static std::vector<Fiber>& fibers(size_t count) {
    static thread_local std::vector<Fiber> found;
    if (found.size() < count) {
      found.resize(count);
    }
    return found;
  }

  static void enter() {
    Block& block = *current;
    try {
      block.kernel_();
    } catch (...) {
      block.failure_ = std::current_exception();
    }
    block.fibers_[block.active_].state = State::done;
    _longjmp(block.scheduler_, 1);
  }

  void resume(unsigned i) {
    current = this;
    active_ = i;
    threadIdx = blockDim.at(i);
    if (_setjmp(scheduler_) == 0) {
      advance(fibers_[i]);
    }
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

  [[noreturn]] static void advance(Fiber& fiber) {
    if (fiber.state == State::waiting) {
      _longjmp(fiber.position, 1);
    }
    fiber.state = State::waiting;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = stack_size;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Block::enter, 0);
    setcontext(&fiber.context);
    std::terminate(); // setcontext does not return
  }

  std::function<void()> kernel_;
  std::vector<Fiber>& fibers_;
  jmp_buf scheduler_;
  std::exception_ptr failure_;
  unsigned active_ = 0;
  bool is_running_ = false;
  bool has_barriers_ = false;
  std::mt19937 random_;
};

// What stands for `kernel<<<grid, block, shared, stream>>>`.
template <typename Kernel>
struct Launch {
  Launch(const char* name, Kernel kernel, dim3 grid, dim3 block, size_t, int)
      : name(name), kernel(kernel), grid(grid), block(block) {}

  template <typename... Arguments>
  void operator()(const Arguments&... arguments) const {
    TORCH_CHECK(grid.count() > 0 && block.count() > 0 && block.count() <= 1024, "invalid configuration of a launch");
    ++launches[name];
    gridDim = grid;
    blockDim = block;
    Block threads([&] { kernel(arguments...); });
    for (unsigned i = 0; i < grid.count(); ++i) {
      blockIdx = grid.at(i);
      if (i == 0 || threads.has_barriers()) {
        threads.run();
      } else {
        threads.run_at_once();
      }
    }
  }

  const char* name;
  Kernel kernel;
  dim3 grid;
  dim3 block;
};

template <typename Stub, typename F>
struct Register {
  Register(Stub& stub, F kernel) {
    stub.impl.cpu_dispatch_ptr = reinterpret_cast<void*>(kernel);
  }
};

struct DeviceProperties {
  int multiProcessorCount = 4;
};

} // namespace emulation

extern "C" __attribute__((weak)) int emulated_launches(const char* name) {
  return emulation::launches[name];
}

#define __syncthreads() emulation::Block::current->wait()

#undef REGISTER_CUDA_DISPATCH
#define REGISTER_CUDA_DISPATCH(name, fn) static const emulation::Register name##_emulated(name, fn);

#undef CUDA_KERNEL_ASSERT
#define CUDA_KERNEL_ASSERT(condition) TORCH_CHECK(condition, #condition)

#define C10_CUDA_KERNEL_LAUNCH_CHECK()

namespace at::cuda {

inline int getCurrentCUDAStream() {
  return 0;
}

inline int warp_size() {
  return 32;
}

inline emulation::DeviceProperties* getCurrentDeviceProperties() {
  static emulation::DeviceProperties properties;
  return &properties;
}

} // namespace at::cuda

namespace at::native::cuda_utils {

constexpr int kCUDABlockReduceNumThreads = 512;

// Of the first 32 values, in the order in which a warp adds them.
template <typename T>
T sum_warp(T* values) {
  for (int count = 16; count > 0; count /= 2) {
    for (int i = 0; i < count; ++i) {
      values[i] += values[i + count];
    }
  }
  return values[0];
}

// As in ATen/native/cuda/block_reduce.cuh: the first thread learns the sum, and `shared` has room for each warp.
template <typename T>
T BlockReduceSum(T value, T* shared) {
  static thread_local std::array<T, 1024> values;
  values[threadIdx.x] = value;
  __syncthreads();
  T sum = std::numeric_limits<T>::quiet_NaN();
  if (threadIdx.x == 0) {
    std::array<T, 32> warps{};
    for (unsigned i = 0; i < blockDim.x / 32; ++i) {
      shared[i] = warps[i] = sum_warp(&values[i * 32]);
    }
    sum = sum_warp(warps.data());
  }
  __syncthreads();
  return sum;
}

} // namespace at::native::cuda_utils
