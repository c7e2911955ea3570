// Statements: the upper half of the parser; precedences and tags are Jinja2's.
#include "weft/model/jinja_expression_parser.h"

namespace weft::model::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Program run() {
    tokens_ = tokenize(program_.source);
    program_.body = parse_body({}, "");
    return std::move(program_);
  }

 private:
  // ---- statements

  // Until a tag named in `ends`, which stays current (after its "{%").
  Body parse_body(std::initializer_list<std::string_view> ends, std::string_view opener) {
    Nest nest(*this);
    const std::size_t begin = current().offset;
    Body body;
    for (;;) {
      const Token& token = current();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() != 0) {
          fail_at(begin, fmt::format("the tag '{}' is not closed: expected '{}'", opener,
                                     *(ends.end() - 1)));
        }
        return body;
      }
      if (token.kind == TokenKind::kData) {
        auto data = statement(StatementKind::kData, token.offset);
        data->text = take().text;
        body.push_back(std::move(data));
      } else if (token.kind == TokenKind::kVariableBegin) {
        auto output = statement(StatementKind::kOutput, token.offset);
        take();
        output->value = parse_tuple();
        if (!is(TokenKind::kVariableEnd))
          fail(fmt::format("expected '}}}}', got {}", describe(current())));
        take();
        body.push_back(std::move(output));
      } else {
        take();
        for (std::string_view end : ends) {
          if (is_name(end)) return body;
        }
        body.push_back(parse_statement());
        expect_block_end();
      }
    }
  }
  // The body of `opener` up to and with `end`.
  Body parse_block(std::string_view end, std::string_view opener) {
    expect_block_end_after_opener();
    Body body = parse_body({end}, opener);
    take();
    return body;
  }
  void expect_block_end_after_opener() {
    skip_operator(":");
    expect_block_end();
  }

  std::unique_ptr<Statement> parse_statement() {
    const Token tag = expect_name("the name of a tag");
    const std::string& name = tag.text;
    if (name == "for") return parse_for(tag.offset);
    if (name == "if") return parse_if(tag.offset);
    if (name == "set") return parse_set(tag.offset);
    if (name == "macro") return parse_macro(tag.offset);
    if (name == "call") return parse_call_block(tag.offset);
    if (name == "filter") return parse_filter_block(tag.offset);
    if (name == "with") return parse_with(tag.offset);
    if (name == "print") return parse_print(tag.offset);
    if (name == "generation") {
      auto out = statement(StatementKind::kScope, tag.offset);
      const int loops = std::exchange(loops_, 0);
      out->body = parse_block("endgeneration", name);
      loops_ = loops;
      return out;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(tag.offset, fmt::format("'{}' outside a loop", name));
      return statement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue,
                       tag.offset);
    }
    for (std::string_view other :
         {"block", "extends", "include", "import", "from", "autoescape", "do", "trans", "debug"}) {
      if (name == other) {
        fail_at(tag.offset, fmt::format("the tag '{}' is not supported in chat templates", name),
                ErrorCode::kUnsupported);
      }
    }
    fail_at(tag.offset, fmt::format("unknown or misplaced tag '{}'", name));
  }

  std::unique_ptr<Statement> parse_for(std::size_t offset) {
    auto out = statement(StatementKind::kFor, offset);
    out->target = parse_target(false, "in");
    if (!skip_name("in")) fail(fmt::format("expected 'in', got {}", describe(current())));
    out->value = parse_tuple(false, "recursive");
    if (skip_name("if")) out->test = parse_expression();
    out->recursive = skip_name("recursive");
    expect_block_end_after_opener();
    ++loops_;
    out->body = parse_body({"else", "endfor"}, "for");
    --loops_;
    if (take().text == "else") out->otherwise = parse_block("endfor", "for");
    return out;
  }

  std::unique_ptr<Statement> parse_if(std::size_t offset) {
    Soft soft(*this);
    auto out = statement(StatementKind::kIf, offset);
    for (;;) {
      auto condition = parse_tuple(false);
      expect_block_end_after_opener();
      Body body = parse_body({"elif", "else", "endif"}, "if");
      out->branches.emplace_back(std::move(condition), std::move(body));
      const std::string next = take().text;
      if (next == "elif") continue;
      if (next == "else") out->otherwise = parse_block("endif", "if");
      return out;
    }
  }

  std::unique_ptr<Statement> parse_set(std::size_t offset) {
    auto target = parse_target(true, "");
    if (skip_operator("=")) {
      auto out = statement(StatementKind::kSet, offset);
      out->target = std::move(target);
      out->value = parse_tuple();
      return out;
    }
    auto out = statement(StatementKind::kSetBlock, offset);
    out->target = std::move(target);
    out->value = parse_filters(make(ExpressionKind::kCaptured, offset));
    const int loops = std::exchange(loops_, 0);
    out->body = parse_block("endset", "set");
    loops_ = loops;
    return out;
  }

  std::vector<Parameter> parse_signature() {
    std::vector<Parameter> out;
    expect_operator("(");
    bool optional = false;
    while (!is_operator(")")) {
      if (!out.empty()) expect_operator(",");
      const Token name = expect_name("the name of a parameter");
      ExpressionPtr fallback;
      if (skip_operator("=")) {
        fallback = parse_expression();
        optional = true;
      } else if (optional) {
        fail_at(name.offset, "a parameter without default follows one with a default");
      }
      out.push_back({name.text, intern(name.text), std::move(fallback)});
    }
    take();
    return out;
  }

  std::unique_ptr<Statement> parse_macro(std::size_t offset) {
    auto out = statement(StatementKind::kMacro, offset);
    const Token name = expect_name("the name of the macro");
    out->text = name.text;
    out->name_id = intern(name.text);
    out->parameters = parse_signature();
    const int loops = std::exchange(loops_, 0);
    out->body = parse_block("endmacro", "macro");
    loops_ = loops;
    return out;
  }

  std::unique_ptr<Statement> parse_call_block(std::size_t offset) {
    auto out = statement(StatementKind::kCallBlock, offset);
    if (is_operator("(")) out->parameters = parse_signature();
    out->value = parse_expression();
    if (out->value->kind != ExpressionKind::kCall)
      fail_at(offset, "'call' needs a call of a macro");
    const int loops = std::exchange(loops_, 0);
    out->body = parse_block("endcall", "call");
    loops_ = loops;
    return out;
  }

  std::unique_ptr<Statement> parse_filter_block(std::size_t offset) {
    auto out = statement(StatementKind::kFilterBlock, offset);
    out->value = parse_filters(make(ExpressionKind::kCaptured, offset), true);
    const int loops = std::exchange(loops_, 0);
    out->body = parse_block("endfilter", "filter");
    loops_ = loops;
    return out;
  }

  std::unique_ptr<Statement> parse_with(std::size_t offset) {
    auto out = statement(StatementKind::kWith, offset);
    while (!is(TokenKind::kBlockEnd)) {
      if (!out->bindings.empty()) expect_operator(",");
      auto target = parse_target(false, "");
      expect_operator("=");
      auto value = parse_expression();
      out->bindings.emplace_back(std::move(target), std::move(value));
    }
    out->body = parse_block("endwith", "with");
    return out;
  }

  std::unique_ptr<Statement> parse_print(std::size_t offset) {
    auto out = statement(StatementKind::kOutput, offset);
    out->value = parse_expression();
    return out;
  }

  // A name, a tuple of names, or (with_namespace) namespace.attribute.
  ExpressionPtr parse_target(bool with_namespace, std::string_view end) {
    const std::size_t offset = current().offset;
    std::vector<ExpressionPtr> targets;
    bool tuple = false;
    while (targets.empty() || !ends_tuple(end)) {
      targets.push_back(parse_one_target(with_namespace));
      if (!skip_operator(",")) break;
      tuple = true;
    }
    if (!tuple) return std::move(targets[0]);
    return make(ExpressionKind::kTuple, offset, std::move(targets));
  }
  ExpressionPtr parse_one_target(bool with_namespace) {
    Nest nest(*this);
    const std::size_t offset = current().offset;
    if (skip_operator("(")) {
      auto inner = parse_target(with_namespace, "");
      expect_operator(")");
      return inner;
    }
    const Token name = expect_name("a name to assign to");
    for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name.text == constant) fail_at(offset, "cannot assign to a constant");
    }
    if (with_namespace && skip_operator(".")) {
      auto out = make(ExpressionKind::kNamespaceAttribute, offset);
      out->name_id = intern(name.text);
      out->name = expect_name("the name of an attribute").text;
      return out;
    }
    auto out = make(ExpressionKind::kName, offset);
    out->name_id = intern(name.text);
    return out;
  }
};

}  // namespace

Program parse_program(std::string source) { return Parser(std::move(source)).run(); }

}  // namespace weft::model::jinja
