// Python's str on UTF-8 text: what Jinja templates expect of their strings.
// Positions and lengths count code points. Input must be valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::model::jinja {

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
std::int64_t count_code_points(std::string_view text);
std::vector<char32_t> decode_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);
std::string encode_utf8(const std::vector<char32_t>& code_points);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_alpha(char32_t c);      // str.isalpha
bool is_decimal(char32_t c);    // str.isdigit, without the superscripts

// The resolved bounds of a Python slice over `length` items.
struct SliceBounds {
  std::int64_t start, stop, step;
};
SliceBounds resolve_slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                          std::int64_t step, std::int64_t length);
std::string slice_text(std::string_view text, std::optional<std::int64_t> start,
                       std::optional<std::int64_t> stop, std::int64_t step);

// `characters` empty (nullopt) strips white space.
std::string strip(std::string_view text, std::optional<std::string_view> characters, bool left,
                  bool right);
// `limit` -1 = all. split without separator splits at runs of white space.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               std::int64_t limit);
std::vector<std::string> split_right(std::string_view text,
                                     std::optional<std::string_view> separator, std::int64_t limit);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
// Python's replace: an empty `from` matches between all characters.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         std::int64_t limit);

// With the unconditional multi-character mappings of Unicode's SpecialCasing.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string to_title(std::string_view text);  // str.title
std::string swap_case(std::string_view text);
bool has_only_upper(std::string_view text);  // str.isupper
bool has_only_lower(std::string_view text);  // str.islower

// Python's repr of a string and of a float.
std::string repr_text(std::string_view text);
std::string repr_float(double value);
// A JSON string as json.dumps writes it.
void append_json_text(std::string& out, std::string_view text, bool ensure_ascii);

}  // namespace weft::model::jinja
