// A topology for people: text, and an SVG that stays readable from one node to thousands.
#pragma once

#include <string>

#include "weft/cluster/topology.h"

namespace weft::cluster {

// Counts by kind and model, then the tree: equal siblings are one line ("16 nodes, 8 GPUs
// each"), so that 800 nodes fit on a screen. `all`: every part.
std::string topology_text(const Topology& topology, bool all = false);

// Up to 32 nodes: every node a box with its devices, switches above them and links drawn.
// Above: a block for each switch that holds nodes, with a square for each node, coloured by
// GPUs and health, grouped by pod. Self-contained, with a title for each box (hover).
std::string topology_svg(const Topology& topology);

}  // namespace weft::cluster
