// Slurm's host lists: "dev[0-5,7],tux[00-15]".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft::cluster {

// The names, in the order written; at most `most`. Numbers keep the width of their
// range's start. kInvalidArgument for what is no host list.
Result<std::vector<std::string>> expand_host_list(std::string_view text,
                                                  std::size_t most = std::size_t{1} << 20);

}  // namespace weft::cluster
