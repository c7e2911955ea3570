#include "weft/nn/autograd/device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <charconv>
#include <filesystem>
#include <mutex>
#include <optional>

namespace weft::nn::autograd {
namespace {

constexpr std::string_view kCuda = "cuda";

// The number in "cuda:N"; 0 for "cuda"; nothing for any other name.
std::optional<int> cuda_index(std::string_view name) {
  if (!name.starts_with(kCuda)) return std::nullopt;
  name.remove_prefix(kCuda.size());
  if (name.empty()) return 0;
  if (name.front() != ':') return std::nullopt;
  int index = -1;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

std::string last_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

// Devices that the driver sees. Asked before libtorch_cuda is loaded, which takes a second
// and 2 GB of address space.
Result<int> count_devices() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) {
    return fail(ErrorCode::kUnavailable,
                "no CUDA device can be used: the NVIDIA driver is not installed ({})",
                last_dl_error());
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  if (init == nullptr || count == nullptr) {
    return fail(ErrorCode::kUnavailable, "libcuda.so.1 is no CUDA driver: it lacks cuInit");
  }
  int devices = 0;
  const int failed = init(0) != 0 ? 1 : count(&devices);
  if (failed != 0 || devices == 0) {
    return fail(ErrorCode::kUnavailable,
                "no CUDA device can be used: the driver is installed but finds no device");
  }
  return devices;
}

// libtorch_cuda lies beside the libtorch_cpu that this program runs on.
Result<int> load_cuda() {
  WEFT_ASSIGN(const int devices, count_devices());
  Dl_info where{};
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &where) == 0) {
    return fail(ErrorCode::kInternal, "cannot tell where libtorch lies: {}", last_dl_error());
  }
  const auto path = std::filesystem::path(where.dli_fname).parent_path() / "libtorch_cuda.so";
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return fail(ErrorCode::kUnavailable,
                "{} CUDA device(s) found, but libtorch's CUDA half does not load: {}; install the "
                "CUDA libraries of the torch wheel (nvidia-cublas, nvidia-cudnn, nvidia-nccl, ...)",
                devices, last_dl_error());
  }
  if (!at::detail::getCUDAHooks().hasCUDA()) {
    return fail(ErrorCode::kUnavailable, "{} is loaded but registered no CUDA support",
                path.string());
  }
  return devices;
}

const Result<int>& cuda() {
  static const Result<int> loaded = load_cuda();
  return loaded;
}

}  // namespace

Result<at::Device> open_device(std::string_view name) {
  if (name == "cpu") return at::Device(at::kCPU);
  if (name == "auto") return cuda() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const std::optional<int> index = cuda_index(name);
  if (!index) {
    return fail(ErrorCode::kInvalidArgument, "device is '{}'; it can be cpu, cuda, cuda:N or auto",
                name);
  }
  WEFT_ASSIGN(const int devices, cuda());
  if (*index >= devices) {
    return fail(ErrorCode::kUnavailable, "device is '{}' but this machine has {} CUDA device(s)",
                name, devices);
  }
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(*index));
}

}  // namespace weft::nn::autograd
