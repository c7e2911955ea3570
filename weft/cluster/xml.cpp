#include "weft/cluster/xml.h"

#include <expat.h>

#include <memory>

namespace weft::cluster {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxDepth = 256;

struct Builder {
  XML_Parser parser;
  XmlElement root = {};
  std::vector<XmlElement> open = {};
  bool too_deep = false;

  static void start(void* user, const XML_Char* name, const XML_Char** attributes) {
    auto& self = *static_cast<Builder*>(user);
    if (self.open.size() >= kMaxDepth) {
      self.too_deep = true;
      XML_StopParser(self.parser, XML_FALSE);
      return;
    }
    XmlElement element;
    element.name = name;
    element.line = static_cast<int>(XML_GetCurrentLineNumber(self.parser));
    for (; attributes[0] != nullptr; attributes += 2) {
      element.attributes.emplace_back(attributes[0], attributes[1]);
    }
    self.open.push_back(std::move(element));
  }
  static void end(void* user, const XML_Char*) {
    auto& self = *static_cast<Builder*>(user);
    if (self.open.empty()) return;  // only after XML_StopParser
    XmlElement element = std::move(self.open.back());
    self.open.pop_back();
    if (self.open.empty()) {
      self.root = std::move(element);
    } else {
      self.open.back().children.push_back(std::move(element));
    }
  }
  static void text(void* user, const XML_Char* text, int length) {
    auto& self = *static_cast<Builder*>(user);
    if (!self.open.empty()) self.open.back().text.append(text, static_cast<std::size_t>(length));
  }
};

}  // namespace

const std::string* XmlElement::attribute(std::string_view wanted) const {
  for (const auto& [key, value] : attributes) {
    if (key == wanted) return &value;
  }
  return nullptr;
}

Result<XmlElement> parse_xml(std::string_view text, std::string_view file) {
  if (text.size() > kMaxBytes) {
    return fail(ErrorCode::kOutOfRange, "{}:1: {} bytes of XML, over {}", file, text.size(),
                kMaxBytes);
  }
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate(nullptr), &XML_ParserFree);
  WEFT_CHECK(parser != nullptr);
  Builder builder{.parser = parser.get()};
  XML_SetUserData(parser.get(), &builder);
  XML_SetElementHandler(parser.get(), &Builder::start, &Builder::end);
  XML_SetCharacterDataHandler(parser.get(), &Builder::text);
  const auto status = XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), XML_TRUE);
  if (status != XML_STATUS_OK) {
    const auto line = XML_GetCurrentLineNumber(parser.get());
    if (builder.too_deep) {
      return fail(ErrorCode::kCorrupt, "{}:{}: more than {} levels of elements", file, line,
                  kMaxDepth);
    }
    return fail(ErrorCode::kCorrupt, "{}:{}: no well-formed XML: {}; fetch the file again", file,
                line, XML_ErrorString(XML_GetErrorCode(parser.get())));
  }
  return std::move(builder.root);
}

}  // namespace weft::cluster
