// The tables of filters. A filter takes its input and the arguments in brackets.
#pragma once

#include <string>
#include <unordered_map>

#include "weft/model/jinja_interpreter.h"

namespace weft::model::jinja {

using Filter = Value (*)(Interpreter&, const Value& input, Arguments arguments);

const std::unordered_map<std::string, Filter>& value_filters();
const std::unordered_map<std::string, Filter>& sequence_filters();

}  // namespace weft::model::jinja
