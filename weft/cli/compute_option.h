// --compute: the arithmetic of the matrix products, the same flag in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "weft/model/weights.h"
#include "weft/nn/matmul.h"

namespace weft::cli {

// Adds `flag` with the values f32, bf16, int8 and auto.
void add_compute_option(CLI::App& command, const std::string& flag, std::string& value);

// "auto" is f32 for files whose tensors are all F32, and bf16 for others.
nn::Compute choose_compute(const std::string& value, const model::WeightSet& weights);

}  // namespace weft::cli
