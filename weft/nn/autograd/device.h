// Devices of libtorch. Weft links libtorch's CPU half only; the CUDA half is loaded
// when a CUDA device is first asked for.
#pragma once

#include <c10/core/Device.h>

#include <string_view>

#include "weft/base/result.h"

namespace weft::nn::autograd {

// The device of that name (cpu, cuda, cuda:N, auto), ready for tensors. "auto" is the first CUDA
// device where one can be used, else the CPU. kInvalidArgument for another name; kUnavailable says
// what a CUDA device lacks here: the driver, a device, or a library that libtorch_cuda
// needs. From any thread.
Result<at::Device> open_device(std::string_view name);

}  // namespace weft::nn::autograd
