#include "weft/cluster/host_list.h"

#include <charconv>

namespace weft::cluster {
namespace {

bool number(std::string_view text, unsigned& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && text.size() <= 8;
}

// One name with its brackets, the first of which is expanded here.
Status expand_one(std::string_view text, std::size_t most, std::vector<std::string>& names) {
  const auto open = text.find('[');
  if (open == std::string_view::npos) {
    if (text.empty() || text.find_first_of("] \t=") != std::string_view::npos) {
      return fail(ErrorCode::kInvalidArgument, "\"{}\" is no host name", text);
    }
    if (names.size() >= most) {
      return fail(ErrorCode::kOutOfRange, "the list has more than {} hosts", most);
    }
    names.emplace_back(text);
    return {};
  }
  const auto close = text.find(']', open);
  if (close == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "\"{}\": '[' is not closed", text);
  }
  const std::string_view head = text.substr(0, open), tail = text.substr(close + 1);
  std::string_view ranges = text.substr(open + 1, close - open - 1);
  while (true) {
    const auto comma = ranges.find(',');
    const std::string_view range = ranges.substr(0, comma);
    const auto dash = range.find('-');
    const std::string_view low_text = range.substr(0, dash);
    unsigned low = 0, high = 0;
    if (!number(low_text, low) ||
        !number(dash == std::string_view::npos ? low_text : range.substr(dash + 1), high) ||
        high < low) {
      return fail(ErrorCode::kInvalidArgument,
                  "\"{}\": expected a number or a rising range such as 0-7, got \"{}\"", text,
                  range);
    }
    for (unsigned i = low; i <= high; ++i) {
      WEFT_TRY(expand_one(fmt::format("{}{:0{}}{}", head, i, low_text.size(), tail), most, names));
    }
    if (comma == std::string_view::npos) return {};
    ranges.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view text, std::size_t most) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    WEFT_TRY(expand_one(text.substr(begin, i - begin), most, names));
    begin = i + 1;
  }
  return names;
}

}  // namespace weft::cluster
