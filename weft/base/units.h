// Quantities for people: bytes, counts, durations.
#pragma once

#include <string>

namespace weft {

// Three significant digits, decimal prefixes: "105 MB", "1.78 GB", "17 B".
std::string human_bytes(double bytes);
// "135 M", "1.23 k", "17".
std::string human_count(double count);
// "1.2 ms", "3.4 s", "2 min 05 s", "3 h 07 min".
std::string human_duration(double seconds);

}  // namespace weft
