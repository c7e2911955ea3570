// How one format's lines become rows. Only for request_reader.cpp and the parsers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/workload/request.h"
#include "weft/workload/request_reader.h"
#include "weft/workload/row_tally.h"

namespace weft::workload {

// One row as its line says it. Views are valid until the next line.
struct ParsedRequest {
  std::int64_t time_ns = 0;  // unix time where `dated`
  std::uint32_t input_tokens = 0, output_tokens = 0;
  std::string_view label;
  std::string_view session;            // empty: none
  std::string_view chat, parent_chat;  // Bailian: ids of this turn and of the one before
  bool failed = false;
  float elapsed_s = -1;
  std::vector<std::uint64_t> blocks;
};

// A row's problem: empty means none. `fatal` stops the whole read.
struct RowProblem {
  std::string reason = {};
  bool fatal = false;
  bool blank = false;  // no row at all
  bool bad() const { return fatal || blank || !reason.empty(); }
};

class RequestParser {
 public:
  virtual ~RequestParser() = default;
  // Called with the first line, which is a header in CSV formats. True: it is no row.
  virtual Result<bool> begin(std::string_view first_line, RequestTrace& facts, RowTally& tally) = 0;
  virtual RowProblem parse(std::string_view line, ParsedRequest& row) = 0;
};

// Null when `format` is not of that family.
std::unique_ptr<RequestParser> make_csv_parser(std::string_view format, std::string_view file);
std::unique_ptr<RequestParser> make_jsonl_parser(std::string_view format, std::string_view file,
                                                 const RequestReadOptions& options);

}  // namespace weft::workload
