// The options of a leaf-spine fabric and the rings on it, of `weft sim fabric` and `weft plan
// traffic`.
#pragma once

#include <CLI/CLI.hpp>

#include "weft/sim/fabric_sim.h"

namespace weft::cli {

void add_fabric_options(CLI::App& verb, sim::FabricSpec& spec);

}  // namespace weft::cli
