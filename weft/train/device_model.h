// DeviceModel: the trainer's network in libtorch's own operators, on any of its devices.
// The f32 masters, gradients and moments stay in host memory, where AdamW runs; this
// holds a copy of the parameters on the device.
#pragma once

#include <c10/core/Device.h>

#include "weft/nn/autograd/transformer.h"

namespace weft::train {

// Not thread-safe. Throws what libtorch throws (out of device memory).
class DeviceModel {
 public:
  explicit DeviceModel(at::Device device) : device_(device) {}

  // Copies host parameters to the device: after each change of them.
  void upload(const nn::autograd::Model& host);
  // Adds the gradients of the backward passes since the last call to the host's.
  void collect(nn::autograd::Model& host);

  nn::autograd::Model& network() { return network_; }

 private:
  at::Device device_;
  nn::autograd::Model network_;
};

}  // namespace weft::train
