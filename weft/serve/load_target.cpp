#include "weft/serve/load.h"

namespace weft::serve {

Result<LoadTarget> parse_target(std::string_view url) {
  LoadTarget target;
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    return fail(ErrorCode::kUnsupported,
                "{}: TLS is not spoken by weft load; put the server behind plain HTTP for the test",
                url);
  }
  if (rest.starts_with("http://")) rest.remove_prefix(7);
  const auto slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view prefix = slash == std::string_view::npos ? "" : rest.substr(slash);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix.ends_with("/v1")) prefix.remove_suffix(3);
  target.prefix = prefix;
  const auto bracket = authority.rfind(']');
  const auto colon = authority.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    target.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  target.host = authority;
  const bool digits = target.port.find_first_not_of("0123456789") == std::string::npos;
  if (target.host.empty() || target.port.empty() || !digits) {
    return fail(ErrorCode::kInvalidArgument, "'{}' is no http://HOST:PORT", url);
  }
  return target;
}

}  // namespace weft::serve
