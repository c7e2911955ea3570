#include "weft/workload/conversation_source.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "weft/base/json.h"

namespace weft::workload {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::array<std::string_view, 6> kAnswerers = {"gpt",  "chatgpt", "bing",
                                                        "bard", "claude",  "assistant"};

std::uint32_t bytes_by_four(std::string_view text) {
  return static_cast<std::uint32_t>((text.size() + 3) / 4);
}

}  // namespace

Result<ConversationSource> ConversationSource::open(const std::filesystem::path& path,
                                                    CountTokens count) {
  ConversationSource source;
  source.name_ = path.string();
  source.count_ = count ? std::move(count) : bytes_by_four;
  source.file_.reset(std::fopen(path.c_str(), "rb"));
  if (source.file_ == nullptr) {
    return fail(ErrorCode::kIo, "cannot open {}: {}", source.name_, std::strerror(errno));
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  source.file_bytes_ = error ? 0 : static_cast<std::int64_t>(bytes);
  return source;
}

// Copies the text from one outermost '{' to its '}': brackets inside strings do not count,
// and what stands between conversations ('[', ',', blanks) is passed over.
Result<bool> ConversationSource::next_element() {
  text_.clear();
  int depth = 0;
  bool in_string = false, escaped = false;
  for (;;) {
    if (at_ == buffer_.size()) {
      buffer_.resize(kChunkBytes);
      buffer_.resize(std::fread(buffer_.data(), 1, kChunkBytes, file_.get()));
      at_ = 0;
      if (buffer_.empty()) {
        if (std::ferror(file_.get()) != 0) return fail(ErrorCode::kIo, "cannot read {}", name_);
        if (depth == 0) return false;
        return fail(ErrorCode::kCorrupt, "{}: conversation {} is cut off at the end of the file",
                    name_, element_ + 1);
      }
      bytes_read_ += static_cast<std::int64_t>(buffer_.size());
    }
    const char c = buffer_[at_++];
    if (depth == 0 && c != '{') continue;
    text_ += c;
    if (text_.size() > kMaxElementBytes) {
      return fail(ErrorCode::kCorrupt, "{}: conversation {} is longer than {} bytes", name_,
                  element_ + 1, kMaxElementBytes);
    }
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0) {
      ++element_;
      return true;
    }
  }
}

void ConversationSource::make_rows() {
  const auto problem = [&](std::string_view what) {
    rows_.push_back(dump_json({{"problem", what}}));
  };
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  if (parser.parse(text_).get(json) != simdjson::SUCCESS) return problem("not a JSON object");
  simdjson::dom::array turns;
  if (json["conversations"].get(turns) != simdjson::SUCCESS &&
      json["messages"].get(turns) != simdjson::SUCCESS) {
    return problem("no 'conversations' and no 'messages'");
  }
  std::string_view id;
  std::string session = fmt::format("c{}", element_);
  if (json["id"].get(id) == simdjson::SUCCESS) session = id;
  std::uint64_t before = 0;
  for (const simdjson::dom::element turn : turns) {
    std::string_view from, text;
    const bool known = (turn["from"].get(from) == simdjson::SUCCESS ||
                        turn["role"].get(from) == simdjson::SUCCESS) &&
                       (turn["value"].get(text) == simdjson::SUCCESS ||
                        turn["content"].get(text) == simdjson::SUCCESS);
    if (!known) {
      rows_.clear();
      return problem("a turn without speaker or text");
    }
    const std::uint32_t tokens = count_(text);
    if (std::ranges::find(kAnswerers, from) != kAnswerers.end() && before > 0) {
      rows_.push_back(dump_json({{"timestamp", 0},
                                 {"input_length", before},
                                 {"output_length", tokens},
                                 {"session_id", session}}));
    }
    before += tokens;
  }
  if (rows_.empty()) problem("no answer in the conversation");
}

Result<bool> ConversationSource::next(std::string_view& line) {
  while (rows_.empty()) {
    WEFT_ASSIGN(const bool more, next_element());
    if (!more) return false;
    make_rows();
  }
  line_ = std::move(rows_.front());
  rows_.pop_front();
  line = line_;
  return true;
}

}  // namespace weft::workload
