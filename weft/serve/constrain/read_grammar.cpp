// From what a request asks for to a grammar.
#include "weft/base/json.h"
#include "weft/serve/constrain/constraint.h"
#include "weft/serve/constrain/gbnf.h"
#include "weft/serve/constrain/json_schema.h"
#include "weft/serve/constrain/regex.h"

namespace weft::serve::constrain {

Result<Grammar> read_grammar(const ConstraintSpec& spec) {
  Grammar out;
  switch (spec.kind) {
    case ConstraintSpec::Kind::kRegex: {
      WEFT_ASSIGN(Expr body, read_regex(spec.text));
      out.rules.push_back({"the regular expression", std::move(body), false});
      return out;
    }
    case ConstraintSpec::Kind::kGbnf:
      return read_gbnf(spec.text);
    case ConstraintSpec::Kind::kJsonSchema: {
      if (spec.text.size() > kMaxSourceBytes) {
        return fail(ErrorCode::kInvalidArgument, "the schema has more than {} bytes",
                    kMaxSourceBytes);
      }
      WEFT_ASSIGN(const Json schema, parse_json(spec.text, "JSON schema"));
      return read_json_schema(schema);
    }
    case ConstraintSpec::Kind::kJsonObject:
      return any_json(true);
    case ConstraintSpec::Kind::kChoice: {
      if (spec.choices.empty()) {
        return fail(ErrorCode::kInvalidArgument, "the list of choices is empty");
      }
      std::vector<Expr> each;
      for (const std::string& text : spec.choices) {
        if (text.empty()) return fail(ErrorCode::kInvalidArgument, "a choice is empty");
        each.push_back(text_of(text));
      }
      out.rules.push_back({"the choice", choice(std::move(each)), false});
      return out;
    }
  }
  return fail(ErrorCode::kInternal, "unknown kind of constraint");
}

Result<std::shared_ptr<const Constraint>> make_constraint(const ConstraintSpec& spec,
                                                          std::shared_ptr<const TokenTrie> trie) {
  WEFT_ASSIGN(const Grammar grammar, read_grammar(spec));
  return Constraint::make(grammar, std::move(trie));
}

}  // namespace weft::serve::constrain
