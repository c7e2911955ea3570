// One HTML page with the plots of one or two request traces; no scripts, nothing from
// elsewhere.
#pragma once

#include <filesystem>
#include <vector>

#include "weft/base/result.h"
#include "weft/workload/request_model.h"

namespace weft::workload {

// Rates, gaps, burstiness over time scales, lengths, turns. `fits` (of the first trace)
// adds its curves to the gaps; may be null.
Status write_request_page(const std::vector<const RequestTrace*>& traces, const FitReport* fits,
                          const std::filesystem::path& path);

}  // namespace weft::workload
