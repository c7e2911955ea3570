// Walks a template's tree. One object per render; not for concurrent use.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/model/jinja_ast.h"

namespace weft::model::jinja {

// Names of one block: a loop body, a macro, a `with`. Small, so searched in order.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;

  const Value* find(int name_id) const;
  void set(int name_id, Value value);
};

class Interpreter {
 public:
  Interpreter(const Program& program, Budget& budget);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders with these variables. Throws Failure, with the offset of the construct.
  std::string run(const std::map<std::string, Value>& variables);

  Value call(const Value& callee, Arguments arguments);
  Value apply_filter(const std::string& name, const Value& input, Arguments arguments);
  bool apply_test(const std::string& name, const Value& value, Arguments arguments);
  Value get_item(const Value& object, const Value& key);
  Value get_attribute(const Value& object, const std::string& name);
  // A string that counts against the budget.
  Value text(std::string text);
  Value list(std::vector<Value> items, Kind kind = Kind::kList);
  Value make_namespace(Dict attributes);

  Budget& budget() { return budget_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Counts nesting, for as long as it lives.
  struct Enter {
    explicit Enter(Interpreter& interpreter);
    ~Enter() { --interpreter.depth_; }
    Interpreter& interpreter;
  };

  Value evaluate(const Expression& expression);
  Value evaluate_call(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_item(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  Value evaluate_name(int name_id);
  Value evaluate_conditional(const Expression& expression);
  Arguments arguments(const Expression& call, std::size_t first);

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  void execute_for(const Statement& statement);
  void run_loop(const Statement& statement, std::vector<Value> items, std::int64_t depth);
  Flow execute_if(const Statement& statement);
  void execute_captured(const Statement& statement);
  void execute_call_block(const Statement& statement);
  Value make_macro(const Statement& statement);
  Value run_macro(const Statement& statement, const std::shared_ptr<Scope>& scope,
                  Arguments arguments);
  void assign(const Expression& target, Value value);
  void write(std::string_view text);
  // Renders `body` in an own scope into a string.
  std::string capture(const Body& body, const std::shared_ptr<Scope>& scope);

  const Program& program_;
  Budget& budget_;
  std::shared_ptr<Scope> scope_;
  std::map<std::string, Value> globals_;
  std::string* out_ = nullptr;
  Value captured_value_;
  std::size_t at_ = 0;  // offset of what is being done, for errors
  int depth_ = 0;
  int loop_id_ = -1;
  // Macros refer to scopes that may hold them, and namespaces may hold themselves:
  // both are emptied at the end, so that nothing keeps itself alive.
  std::vector<std::shared_ptr<Scope>> macro_scopes_;
  std::vector<std::shared_ptr<Dict>> namespaces_;
};

// range, dict, namespace, raise_exception, strftime_now.
std::map<std::string, Value> make_globals();
Value make_function(std::string name, std::function<Value(Interpreter&, Arguments)> call);
// loop.index, loop.cycle, ...
Value loop_attribute(const Value& loop, const std::string& name);

// Binds positional and named arguments to the parameters of a built-in.
class Parameters {
 public:
  Parameters(std::string_view function, Arguments arguments,
             std::initializer_list<const char*> names);
  bool has(std::size_t index) const { return given_[index]; }
  const Value& operator[](std::size_t index) const {
    return values_[index];
  }  // undefined if absent
  const Value& require(std::size_t index) const;
  bool flag(std::size_t index, bool fallback) const;
  std::int64_t integer(std::size_t index, std::int64_t fallback) const;
  std::string string(std::size_t index, std::string fallback) const;

 private:
  std::string function_;
  std::vector<const char*> names_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

std::int64_t to_index(const Value& value, std::string_view what);

Value binary_operation(Operator op, const Value& a, const Value& b, Budget& budget);
bool contains(const Value& container, const Value& item, Budget& budget);
bool compare_values(Operator op, const Value& a, const Value& b, Budget& budget);

// Built-in methods of str, list, tuple and dict. A method that Python has and the
// sandbox forbids (list.append) gives an undefined value that says so.
bool find_method(const Value& object, const std::string& name, Value& method);

std::string percent_format(std::string_view format, const Value& arguments, Budget& budget);
std::string brace_format(std::string_view format, const Arguments& arguments,
                         Interpreter& interpreter);

}  // namespace weft::model::jinja
