// Cutting traces, and laying two side by side.
#pragma once

#include <string>

#include "weft/base/json.h"
#include "weft/workload/request.h"
#include "weft/workload/request_info.h"

namespace weft::workload {

struct SliceOptions {
  double from_s = 0, until_s = 1e18;  // after the first request
  std::int64_t rows = 0;              // at most so many; 0: all
  std::string label;                  // only these; empty: all
  double speed = 1;                   // times are divided by it
};
// Times begin at 0 in the cut. kInvalidArgument when nothing is left, or for a label that
// the trace does not have.
Result<RequestTrace> slice_requests(const RequestTrace& trace, const SliceOptions& options);

struct RequestComparison {
  RequestInfo a, b;
  double gap_ks = 0, input_ks = 0, output_ks = 0;  // two-sample distances
  Json json() const;
  std::string text(const std::string& name_a, const std::string& name_b) const;
};
RequestComparison compare_requests(const RequestTrace& a, const RequestTrace& b);

}  // namespace weft::workload
