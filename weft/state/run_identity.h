// The identity of a run directory: the file run.json, written once.
#pragma once

#include <filesystem>

#include "weft/base/id.h"
#include "weft/base/result.h"

namespace weft::state {

// The id of the run in `directory`, which exists. A directory without run.json gets a
// fresh one; kCorrupt if the file is there but holds no id (it names the file).
Result<RunId> identify_run(const std::filesystem::path& directory);

}  // namespace weft::state
