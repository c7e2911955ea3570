#include "weft/train/device_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace weft::train {
namespace {

namespace autograd = nn::autograd;

// body(device's parameter, host's parameter) for each; a tied head is not repeated.
template <class Host, class Body>
void each_pair(autograd::Model& device, Host& host, Body body) {
  body(device.embedding, host.embedding);
  if (!host.config.tie_embeddings) body(device.lm_head, host.lm_head);
  body(device.positions, host.positions);
  body(device.final_norm, host.final_norm);
  body(device.final_norm_bias, host.final_norm_bias);
  body(device.value_weight, host.value_weight);
  body(device.value_bias, host.value_bias);
  device.layers.resize(host.layers.size());
  for (std::size_t i = 0; i < host.layers.size(); ++i) {
    autograd::Layer& to = device.layers[i];
    auto& from = host.layers[i];
    for (auto vector :
         {&autograd::Layer::attention_norm, &autograd::Layer::attention_norm_bias,
          &autograd::Layer::mlp_norm, &autograd::Layer::mlp_norm_bias, &autograd::Layer::q_norm,
          &autograd::Layer::k_norm, &autograd::Layer::qkv_bias, &autograd::Layer::o_bias,
          &autograd::Layer::gate_up_bias, &autograd::Layer::down_bias})
      body(to.*vector, from.*vector);
    for (auto matrix : {&autograd::Layer::qkv, &autograd::Layer::o, &autograd::Layer::gate_up,
                        &autograd::Layer::down})
      body(to.*matrix, from.*matrix);
  }
}

}  // namespace

void DeviceModel::upload(const autograd::Model& host) {
  const at::NoGradGuard no_grad;
  network_.config = host.config;
  each_pair(network_, host, [&](auto& to, const auto& from) {
    if constexpr (requires { to.packed; })
      to.packed = from.packed;  // says what products compute in
    if (!from.value.defined()) return;
    if (to.value.defined()) {
      to.value.copy_(from.value);
    } else {
      to.value = from.value.to(device_, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
      to.value.set_requires_grad(true);
    }
  });
  if (host.config.tie_embeddings) network_.lm_head = network_.embedding;
}

void DeviceModel::collect(autograd::Model& host) {
  const at::NoGradGuard no_grad;
  each_pair(network_, host, [](auto& from, auto& to) {
    if (!from.value.defined() || !from.value.grad().defined()) return;
    to.grad.add_(from.value.grad().to(at::kCPU));
    from.value.mutable_grad().reset();
  });
}

}  // namespace weft::train
