// Reads the request traces that are published, row by row. docs/formats/request-trace.md
// lists the formats with their columns, units and traps.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/workload/request.h"
#include "weft/workload/row_tally.h"
#include "weft/workload/trace_format.h"

namespace weft::workload {

enum class TimeOrder {
  kAuto,  // kSort where the format is known to hold several runs one after another
  kDrop,  // a row before the one kept last is dropped
  kSort,  // rows are sorted by time when all are read, counted as repairs; a stream (next())
          // gives them as they come
};

struct RequestReadOptions {
  std::string format = {};  // empty: told from the file
  bool strict = false;      // the first row that would be dropped or repaired is an error
  TimeOrder order = TimeOrder::kAuto;
  std::uint32_t block_tokens = 0;  // tokens of a prompt block; 0: the format's own size
  // Tokens of a text, for formats that hold text (ShareGPT); empty: bytes / 4, noted.
  std::function<std::uint32_t(std::string_view)> count_tokens = {};
  std::function<void(std::int64_t bytes, std::int64_t of)> progress = {};  // every 65,536 rows
};

// A stream of rows: memory is bounded by the longest line and the tables of session
// names and labels. Moves; not for concurrent use.
class RequestReader {
 public:
  // Reads the header: kInvalidArgument names a column that is missing.
  static Result<RequestReader> open(const std::filesystem::path& path,
                                    RequestReadOptions options = {});
  RequestReader(RequestReader&&) noexcept;
  RequestReader& operator=(RequestReader&&) noexcept;
  ~RequestReader();

  // The next kept row and its blocks (valid until the next call; Request::first_block
  // is not set). False at the end. Fails on I/O and, in strict mode, on a bad row; a
  // wrong block size (ids != ceil(input / block)) always fails.
  Result<bool> next(Request& row, std::span<const std::uint64_t>& blocks);

  const RowTally& tally() const;
  // What is known besides the rows: labels and sessions grow while rows are read.
  const RequestTrace& facts() const;

 private:
  struct State;
  explicit RequestReader(std::unique_ptr<State> state);
  friend Result<struct LoadedRequests> load_requests(const std::filesystem::path&,
                                                     RequestReadOptions);
  std::unique_ptr<State> state_;
};

struct LoadedRequests {
  RequestTrace trace;
  RowTally tally;
};
// The whole trace: 40 bytes a row, and its blocks.
Result<LoadedRequests> load_requests(const std::filesystem::path& path,
                                     RequestReadOptions options = {});

// Writes rows in one of the formats that can be written: "weft", "azure", "burstgpt",
// "mooncake", "vidur". What a format has no place for is counted in `lost` (labels,
// sessions, blocks, times finer than its unit), one sentence each.
Status write_requests(const RequestTrace& trace, std::string_view format,
                      const std::filesystem::path& path, std::vector<std::string>* lost = nullptr);

}  // namespace weft::workload
