// The HTML report of a run: one file that needs nothing else.
#pragma once

#include <filesystem>

#include "weft/base/result.h"

namespace weft::rl {

// Reads the run directory's config.json, machine.json, metrics.jsonl and
// evaluations.jsonl and writes report.html there. May be called while the run goes on.
Status write_report(const std::filesystem::path& run);

}  // namespace weft::rl
