// Tokens and expressions: the lower half of the parser, after Jinja2's grammar.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>

#include "weft/model/jinja_ast.h"
#include "weft/model/jinja_lexer.h"

namespace weft::model::jinja {

inline constexpr int kMaxParseDepth = 200;  // of recursion, and of any tree

// Reads one expression after another from the tokens; the statements' parser is made
// of it. Throws Failure.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string source) { program_.source = std::move(source); }

 protected:
  struct Nest {
    explicit Nest(ExpressionParser& parser) : parser(parser) {
      if (++parser.nesting_ > kMaxParseDepth)
        parser.fail("the template is nested more than 200 deep");
    }
    ~Nest() { --parser.nesting_; }
    ExpressionParser& parser;
  };
  struct Soft {  // inside a branch, where an unknown filter is an error only when reached
    explicit Soft(ExpressionParser& parser) : parser(parser) { ++parser.soft_; }
    ~Soft() { --parser.soft_; }
    ExpressionParser& parser;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(TokenKind kind, std::string_view text = {}) const {
    return current().kind == kind && (text.empty() || current().text == text);
  }
  bool is_name(std::string_view text) const { return is(TokenKind::kName, text); }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator, text); }
  bool skip_name(std::string_view text) { return is_name(text) && (take(), true); }
  bool skip_operator(std::string_view text) { return is_operator(text) && (take(), true); }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kData:
        return "text";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kVariableBegin:
        return "'{{'";
      case TokenKind::kVariableEnd:
        return "'}}'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return "'" + token.text + "'";
    }
  }
  [[noreturn]] void fail(std::string message) const {
    fail_at(current().offset, std::move(message));
  }
  [[noreturn]] static void fail_at(std::size_t offset, std::string message,
                                   ErrorCode code = ErrorCode::kInvalidArgument) {
    throw Failure{code, std::move(message), offset};
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail(fmt::format("expected '{}', got {}", text, describe(current())));
  }
  Token expect_name(std::string_view what) {
    if (!is(TokenKind::kName)) fail(fmt::format("expected {}, got {}", what, describe(current())));
    return take();
  }
  void expect_block_end() {
    if (!is(TokenKind::kBlockEnd)) fail(fmt::format("expected '%}}', got {}", describe(current())));
    take();
  }

  int intern(const std::string& name) {
    const auto [entry, added] = program_.ids.emplace(name, static_cast<int>(program_.names.size()));
    if (added) program_.names.push_back(name);
    return entry->second;
  }

  ExpressionPtr make(ExpressionKind kind, std::size_t offset,
                     std::vector<ExpressionPtr> items = {}) {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->offset = offset;
    for (const auto& item : items) note_depth(*expression, item, offset);
    expression->items = std::move(items);
    return expression;
  }
  static void note_depth(Expression& parent, const ExpressionPtr& child, std::size_t offset) {
    if (child == nullptr) return;
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxParseDepth)
      fail_at(offset, "the expression is nested more than 200 deep");
  }
  template <class... Items>
  static std::vector<ExpressionPtr> list(Items... items) {
    std::vector<ExpressionPtr> out;
    (out.push_back(std::move(items)), ...);
    return out;
  }
  static std::unique_ptr<Statement> statement(StatementKind kind, std::size_t offset) {
    auto out = std::make_unique<Statement>();
    out->kind = kind;
    out->offset = offset;
    return out;
  }

  // ---- expressions

  bool ends_tuple(std::string_view extra) const {
    return is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || is_operator(")") ||
           is_operator("=") || (!extra.empty() && is_name(extra));
  }

  ExpressionPtr parse_tuple(bool conditional = true, std::string_view end = {},
                            bool parentheses = false) {
    const std::size_t offset = current().offset;
    std::vector<ExpressionPtr> items;
    bool tuple = false;
    while (!ends_tuple(end)) {
      items.push_back(conditional ? parse_expression() : parse_or());
      if (!skip_operator(",")) break;
      tuple = true;
    }
    if (!tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!parentheses) fail(fmt::format("expected an expression, got {}", describe(current())));
    }
    return make(ExpressionKind::kTuple, offset, std::move(items));
  }

  ExpressionPtr parse_expression() {
    Nest nest(*this);
    const std::size_t offset = current().offset;
    auto value = parse_or();
    while (skip_name("if")) {
      Soft soft(*this);
      auto condition = parse_or();
      ExpressionPtr otherwise;
      if (skip_name("else")) otherwise = parse_expression();
      value = make(ExpressionKind::kConditional, offset,
                   list(std::move(condition), std::move(value), std::move(otherwise)));
    }
    return value;
  }

  ExpressionPtr parse_or() {
    auto left = parse_and();
    while (is_name("or")) {
      const std::size_t offset = take().offset;
      left = make(ExpressionKind::kOr, offset, list(std::move(left), parse_and()));
    }
    return left;
  }

  ExpressionPtr parse_and() {
    auto left = parse_not();
    while (is_name("and")) {
      const std::size_t offset = take().offset;
      left = make(ExpressionKind::kAnd, offset, list(std::move(left), parse_not()));
    }
    return left;
  }

  ExpressionPtr parse_not() {
    if (is_name("not")) {
      Nest nest(*this);
      const std::size_t offset = take().offset;
      return make(ExpressionKind::kNot, offset, list(parse_not()));
    }
    return parse_compare();
  }

  ExpressionPtr parse_compare() {
    const std::size_t offset = current().offset;
    auto first = parse_sum();
    std::vector<ExpressionPtr> items;
    std::vector<Operator> operators;
    static constexpr std::array<std::pair<std::string_view, Operator>, 6> kCompare = {
        {{"==", Operator::kEqual},
         {"!=", Operator::kNotEqual},
         {"<", Operator::kLess},
         {"<=", Operator::kLessEqual},
         {">", Operator::kGreater},
         {">=", Operator::kGreaterEqual}}};
    for (;;) {
      const auto* found = std::find_if(kCompare.begin(), kCompare.end(),
                                       [&](const auto& entry) { return is_operator(entry.first); });
      if (found != kCompare.end()) {
        take();
        operators.push_back(found->second);
      } else if (skip_name("in")) {
        operators.push_back(Operator::kIn);
      } else if (is_name("not") && look().kind == TokenKind::kName && look().text == "in") {
        take();
        take();
        operators.push_back(Operator::kNotIn);
      } else {
        break;
      }
      items.push_back(parse_sum());
    }
    if (operators.empty()) return first;
    items.insert(items.begin(), std::move(first));
    auto out = make(ExpressionKind::kCompare, offset, std::move(items));
    out->comparisons = std::move(operators);
    return out;
  }

  ExpressionPtr binary(Operator op, std::size_t offset, ExpressionPtr left, ExpressionPtr right) {
    auto out = make(ExpressionKind::kBinary, offset, list(std::move(left), std::move(right)));
    out->op = op;
    return out;
  }

  ExpressionPtr parse_sum() {
    auto left = parse_concat();
    while (is_operator("+") || is_operator("-")) {
      const Token op = take();
      left = binary(op.text == "+" ? Operator::kAdd : Operator::kSubtract, op.offset,
                    std::move(left), parse_concat());
    }
    return left;
  }

  ExpressionPtr parse_concat() {
    const std::size_t offset = current().offset;
    auto first = parse_product();
    if (!is_operator("~")) return first;
    auto items = list(std::move(first));
    while (skip_operator("~")) items.push_back(parse_product());
    return make(ExpressionKind::kConcat, offset, std::move(items));
  }

  ExpressionPtr parse_product() {
    auto left = parse_power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
      const Token op = take();
      const Operator kind = op.text == "*"    ? Operator::kMultiply
                            : op.text == "/"  ? Operator::kDivide
                            : op.text == "//" ? Operator::kFloorDivide
                                              : Operator::kModulo;
      left = binary(kind, op.offset, std::move(left), parse_power());
    }
    return left;
  }

  ExpressionPtr parse_power() {
    auto left = parse_unary();
    while (is_operator("**")) {
      const std::size_t offset = take().offset;
      left = binary(Operator::kPower, offset, std::move(left), parse_unary());
    }
    return left;
  }

  ExpressionPtr parse_unary(bool with_filters = true) {
    Nest nest(*this);
    ExpressionPtr node;
    if (is_operator("-") || is_operator("+")) {
      const Token op = take();
      node = make(op.text == "-" ? ExpressionKind::kNegate : ExpressionKind::kPositive, op.offset,
                  list(parse_unary(false)));
    } else {
      node = parse_primary();
    }
    node = parse_postfix(std::move(node));
    if (!with_filters) return node;
    for (;;) {
      if (is_operator("|")) {
        node = parse_filters(std::move(node));
      } else if (is_name("is")) {
        node = parse_test(std::move(node));
      } else if (is_operator("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr constant(std::size_t offset, Value value) {
    auto out = make(ExpressionKind::kConstant, offset);
    out->constant = std::move(value);
    return out;
  }

  ExpressionPtr parse_primary() {
    Nest nest(*this);
    const Token token = take();
    switch (token.kind) {
      case TokenKind::kName: {
        if (token.text == "true" || token.text == "True")
          return constant(token.offset, Value::boolean(true));
        if (token.text == "false" || token.text == "False")
          return constant(token.offset, Value::boolean(false));
        if (token.text == "none" || token.text == "None")
          return constant(token.offset, Value::none());
        auto out = make(ExpressionKind::kName, token.offset);
        out->name_id = intern(token.text);
        return out;
      }
      case TokenKind::kString: {
        std::string text = token.text;
        while (is(TokenKind::kString)) text += take().text;
        return constant(token.offset, Value::string(std::move(text)));
      }
      case TokenKind::kInteger: {
        std::int64_t value = 0;
        const auto read =
            std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
        if (read.ec != std::errc{}) fail_at(token.offset, "the number is too large");
        return constant(token.offset, Value::integer(value));
      }
      case TokenKind::kFloat: {
        double value = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
        return constant(token.offset, Value::real(value));
      }
      case TokenKind::kOperator:
        if (token.text == "(") {
          auto out = parse_tuple(true, {}, true);
          expect_operator(")");
          return out;
        }
        if (token.text == "[") return parse_list(token.offset);
        if (token.text == "{") return parse_dict(token.offset);
        [[fallthrough]];
      default:
        fail_at(token.offset, fmt::format("expected an expression, got {}", describe(token)));
    }
  }

  ExpressionPtr parse_list(std::size_t offset) {
    std::vector<ExpressionPtr> items;
    while (!is_operator("]")) {
      if (!items.empty()) {
        expect_operator(",");
        if (is_operator("]")) break;
      }
      items.push_back(parse_expression());
    }
    take();
    return make(ExpressionKind::kList, offset, std::move(items));
  }

  ExpressionPtr parse_dict(std::size_t offset) {
    std::vector<ExpressionPtr> items;
    while (!is_operator("}")) {
      if (!items.empty()) {
        expect_operator(",");
        if (is_operator("}")) break;
      }
      items.push_back(parse_expression());
      expect_operator(":");
      items.push_back(parse_expression());
    }
    take();
    return make(ExpressionKind::kDict, offset, std::move(items));
  }

  ExpressionPtr parse_postfix(ExpressionPtr node) {
    for (;;) {
      if (is_operator(".")) {
        const std::size_t offset = take().offset;
        const Token name = take();
        if (name.kind == TokenKind::kName) {
          node = make(ExpressionKind::kAttribute, offset, list(std::move(node)));
          node->name = name.text;
        } else if (name.kind == TokenKind::kInteger) {
          std::int64_t index = 0;
          std::from_chars(name.text.data(), name.text.data() + name.text.size(), index);
          auto key = constant(name.offset, Value::integer(index));
          node = make(ExpressionKind::kItem, offset, list(std::move(node), std::move(key)));
        } else {
          fail_at(name.offset,
                  fmt::format("expected the name of an attribute, got {}", describe(name)));
        }
      } else if (is_operator("[")) {
        const std::size_t offset = take().offset;
        std::vector<ExpressionPtr> keys;
        while (!is_operator("]")) {
          if (!keys.empty()) expect_operator(",");
          keys.push_back(parse_subscript());
        }
        take();
        if (keys.empty()) fail_at(offset, "expected a subscript between the brackets");
        auto key = keys.size() == 1 ? std::move(keys[0])
                                    : make(ExpressionKind::kTuple, offset, std::move(keys));
        node = make(ExpressionKind::kItem, offset, list(std::move(node), std::move(key)));
      } else if (is_operator("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr parse_subscript() {
    const std::size_t offset = current().offset;
    const auto ends = [&] { return is_operator("]") || is_operator(",") || is_operator(":"); };
    ExpressionPtr start, stop, step;
    if (!is_operator(":")) {
      start = parse_expression();
      if (!is_operator(":")) return start;
    }
    take();
    if (!ends()) stop = parse_expression();
    if (skip_operator(":") && !ends()) step = parse_expression();
    return make(ExpressionKind::kSlice, offset,
                list(std::move(start), std::move(stop), std::move(step)));
  }

  // "(" arguments ")" into `call`, after what it already holds.
  void parse_arguments(Expression& call) {
    const std::size_t offset = current().offset;
    expect_operator("(");
    const auto ensure = [&](bool allowed) {
      if (!allowed) fail_at(offset, "the arguments of the call are in a wrong order");
    };
    bool first = true;
    while (!is_operator(")")) {
      if (!std::exchange(first, false)) {
        expect_operator(",");
        if (is_operator(")")) break;
      }
      if (skip_operator("*")) {
        ensure(call.star == nullptr && call.star_star == nullptr);
        call.star = parse_expression();
        note_depth(call, call.star, offset);
      } else if (skip_operator("**")) {
        ensure(call.star_star == nullptr);
        call.star_star = parse_expression();
        note_depth(call, call.star_star, offset);
      } else if (is(TokenKind::kName) && look().kind == TokenKind::kOperator &&
                 look().text == "=") {
        ensure(call.star_star == nullptr);
        const std::string name = take().text;
        take();
        call.named.emplace_back(name, parse_expression());
        note_depth(call, call.named.back().second, offset);
      } else {
        ensure(call.star == nullptr && call.star_star == nullptr && call.named.empty());
        call.items.push_back(parse_expression());
        note_depth(call, call.items.back(), offset);
      }
    }
    take();
  }

  ExpressionPtr parse_call(ExpressionPtr node) {
    auto out = make(ExpressionKind::kCall, current().offset, list(std::move(node)));
    parse_arguments(*out);
    return out;
  }

  std::string dotted_name(std::string_view what) {
    std::string name = expect_name(what).text;
    while (skip_operator(".")) name += "." + expect_name(what).text;
    return name;
  }

  void require_known(bool known, std::string_view what, const std::string& name,
                     std::size_t offset) const {
    if (known || soft_ > 0) return;
    fail_at(offset, fmt::format("no {} named '{}'", what, name), ErrorCode::kUnsupported);
  }

  ExpressionPtr parse_filters(ExpressionPtr node, bool inline_first = false) {
    while (inline_first || is_operator("|")) {
      if (!std::exchange(inline_first, false)) take();
      const std::size_t offset = current().offset;
      node = make(ExpressionKind::kFilter, offset, list(std::move(node)));
      node->name = dotted_name("the name of a filter");
      require_known(is_filter(node->name), "filter", node->name, offset);
      if (is_operator("(")) parse_arguments(*node);
    }
    return node;
  }

  ExpressionPtr parse_test(ExpressionPtr node) {
    take();
    const bool negated = skip_name("not");
    const std::size_t offset = current().offset;
    auto out = make(ExpressionKind::kTest, offset, list(std::move(node)));
    out->name = dotted_name("the name of a test");
    require_known(is_test(out->name), "test", out->name, offset);
    const TokenKind kind = current().kind;
    if (is_operator("(")) {
      parse_arguments(*out);
    } else if (((kind == TokenKind::kName && !is_name("else") && !is_name("or") &&
                 !is_name("and")) ||
                kind == TokenKind::kString || kind == TokenKind::kInteger ||
                kind == TokenKind::kFloat || is_operator("[") || is_operator("{"))) {
      if (is_name("is")) fail("tests cannot be chained with 'is'");
      out->items.push_back(parse_postfix(parse_primary()));
      note_depth(*out, out->items.back(), offset);
    }
    if (!negated) return out;
    return make(ExpressionKind::kNot, offset, list(std::move(out)));
  }

  Program program_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0, soft_ = 0, loops_ = 0;
};

}  // namespace weft::model::jinja
