// The commands of `weft` that need libtorch: the contents of libweft_learn.so.
#pragma once

#include "weft/cli/commands.h"

namespace weft::cli {}  // namespace weft::cli
