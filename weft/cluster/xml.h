// An XML document as a tree whose elements know their lines. For topology files:
// no namespaces, no entities beyond XML's five, at most 64 MB and 256 levels.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/result.h"

namespace weft::cluster {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  std::string text;  // of this element alone, children's left out
  int line = 0;

  // Null when there is no such attribute.
  const std::string* attribute(std::string_view name) const;
};

// kCorrupt "FILE:LINE: ..." for what is no well-formed XML.
Result<XmlElement> parse_xml(std::string_view text, std::string_view file);

}  // namespace weft::cluster
