// Syntax tree of the template language.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/model/jinja_value.h"

namespace weft::model::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class ExpressionKind : std::uint8_t {
  kConstant,
  kName,
  kNamespaceAttribute,
  kAttribute,
  kItem,
  kSlice,
  kList,
  kTuple,
  kDict,
  kCall,
  kFilter,
  kTest,
  kNot,
  kAnd,
  kOr,
  kCompare,
  kBinary,
  kNegate,
  kPositive,
  kConcat,
  kConditional,
  kCaptured,  // what the body of a filter block or block set rendered to
};

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expression {
  ExpressionKind kind;
  std::size_t offset = 0;
  int depth = 1;
  int name_id = -1;  // kName, kNamespaceAttribute
  std::string name;  // attribute, filter or test
  Value constant;
  Operator op = Operator::kAdd;
  // Operands: [object], [object, key], [start, stop, step] (null = absent), list and
  // tuple items, dict keys and values in turn, [function or input, arguments...],
  // [condition, then, else (null = absent)].
  std::vector<ExpressionPtr> items;
  std::vector<Operator> comparisons;  // kCompare: items[i] ops[i] items[i + 1]
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;  // f(*star, **star_star)
};

enum class StatementKind : std::uint8_t {
  kData,
  kOutput,
  kFor,
  kIf,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  int name_id;
  ExpressionPtr fallback;  // null = required (undefined when not given)
};

struct Statement {
  StatementKind kind;
  std::size_t offset = 0;
  std::string text;                   // data; the name of a macro
  int name_id = -1;                   // macro
  ExpressionPtr target, value, test;  // for: target in value if test
  bool recursive = false;
  Body body, otherwise;
  std::vector<std::pair<ExpressionPtr, Body>> branches;           // if, elif ...
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> bindings;  // with
  std::vector<Parameter> parameters;                              // macro, call
};

struct Program {
  std::string source;  // normalised; offsets refer to it
  Body body;
  std::vector<std::string> names;  // by name_id
  std::unordered_map<std::string, int> ids;
};

// Throws Failure.
Program parse_program(std::string source);

bool is_filter(const std::string& name);
bool is_test(const std::string& name);

}  // namespace weft::model::jinja
