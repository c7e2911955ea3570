// Lexer of the template language: Jinja2's rules with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::model::jinja {

enum class TokenKind : std::uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;        // names, operators, digits, data; strings with escapes resolved
  std::size_t offset = 0;  // into the normalised source
};

// Line ends as "\n", one trailing line end dropped: what offsets refer to.
std::string normalize_source(std::string_view source);

struct Position {
  std::size_t line, column;  // from 1; columns count code points
};
Position position_of(std::string_view source, std::size_t offset);

// Throws Failure. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace weft::model::jinja
