#include "weft/model/package_index.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "weft/base/file.h"
#include "weft/base/json.h"

namespace weft::model {
namespace {

namespace fs = std::filesystem;

std::string trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// The value of index-url in section [global], [install] or [download] of a pip.conf.
std::string index_url_in(const fs::path& file) {
  const auto text = read_file(file, 1 << 20);
  if (!text) return {};
  std::string section, found;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size());
    const std::string line = trim(std::string_view(*text).substr(at, end - at));
    at = end + 1;
    if (line.starts_with('[') && line.ends_with(']')) {
      section = line.substr(1, line.size() - 2);
    } else if (section == "global" || section == "install" || section == "download") {
      const std::size_t split = line.find_first_of("=:");
      if (split == std::string::npos) continue;
      const std::string key = trim(line.substr(0, split));
      if (key == "index-url" || key == "index_url") found = trim(line.substr(split + 1));
    }
  }
  return found;
}

std::string unescape_html(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '&') {
      out += text[i];
      continue;
    }
    constexpr std::pair<std::string_view, char> entities[] = {{"&amp;", '&'},  {"&lt;", '<'},
                                                              {"&gt;", '>'},   {"&quot;", '"'},
                                                              {"&#39;", '\''}, {"&#x27;", '\''}};
    bool known = false;
    for (const auto& [entity, character] : entities) {
      if (text.substr(i).starts_with(entity)) {
        out += character;
        i += entity.size() - 1;
        known = true;
        break;
      }
    }
    if (!known) out += '&';
  }
  return out;
}

// The value of attribute `name` inside a tag's text, or empty.
std::string attribute(std::string_view tag, std::string_view name) {
  std::size_t at = 0;
  while ((at = tag.find(name, at)) != std::string_view::npos) {
    const bool starts = at > 0 && std::isspace(static_cast<unsigned char>(tag[at - 1])) != 0;
    at += name.size();
    std::size_t value = tag.find_first_not_of(" \t\r\n", at);
    if (!starts || value == std::string_view::npos || tag[value] != '=') continue;
    value = tag.find_first_not_of(" \t\r\n", value + 1);
    if (value == std::string_view::npos || (tag[value] != '"' && tag[value] != '\'')) continue;
    const std::size_t end = tag.find(tag[value], value + 1);
    if (end == std::string_view::npos) return {};
    return unescape_html(tag.substr(value + 1, end - value - 1));
  }
  return {};
}

Result<std::vector<IndexFile>> parse_html(const Page& page) {
  std::vector<IndexFile> files;
  const std::string_view body = page.body;
  std::size_t at = 0;
  while ((at = body.find("<a", at)) != std::string_view::npos) {
    const std::size_t close = body.find('>', at);
    if (close == std::string_view::npos) break;
    const std::string_view tag = body.substr(at, close - at);
    const std::size_t end = std::min(body.find("</a", close), body.size());
    at += 2;
    if (tag.size() < 3 || std::isspace(static_cast<unsigned char>(tag[2])) == 0) continue;
    std::string reference = attribute(tag, "href");
    if (reference.empty()) continue;
    IndexFile file;
    file.name = trim(unescape_html(body.substr(close + 1, end - close - 1)));
    if (const std::size_t hash = reference.find('#'); hash != std::string::npos) {
      const std::string fragment = reference.substr(hash + 1);
      if (fragment.starts_with("sha256=")) file.sha256 = lower(fragment.substr(7));
      reference.resize(hash);
    }
    if (!file.sha256.empty() && !is_sha256(file.sha256)) {
      return fail(ErrorCode::kCorrupt, "{}: the sha256 of {} is not 64 hexadecimal digits",
                  page.url, file.name);
    }
    WEFT_ASSIGN(file.url, resolve_url(page.url, reference));
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::vector<IndexFile>> parse_json_page(const Page& page) {
  WEFT_ASSIGN(const Json json, parse_json(page.body, page.url));
  const auto list = json.is_object() ? json.find("files") : json.end();
  if (!json.is_object() || list == json.end() || !list->is_array()) {
    return fail(ErrorCode::kCorrupt, "{}: has no list 'files'", page.url);
  }
  std::vector<IndexFile> files;
  for (const Json& entry : *list) {
    IndexFile file;
    WEFT_ASSIGN(file.name, json_field<std::string>(entry, "filename"));
    WEFT_ASSIGN(const std::string url, json_field<std::string>(entry, "url"));
    WEFT_ASSIGN(file.url, resolve_url(page.url, url));
    if (const auto hashes = entry.find("hashes"); hashes != entry.end() && hashes->is_object()) {
      WEFT_ASSIGN(file.sha256, json_field_or<std::string>(*hashes, "sha256", ""));
      file.sha256 = lower(file.sha256);
    }
    if (!file.sha256.empty() && !is_sha256(file.sha256)) {
      return fail(ErrorCode::kCorrupt, "{}: the sha256 of {} is not 64 hexadecimal digits",
                  page.url, file.name);
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

std::string package_index_url() {
  if (const char* url = std::getenv("PIP_INDEX_URL"); url != nullptr && *url != '\0') return url;
  std::vector<fs::path> places;
  if (const char* file = std::getenv("PIP_CONFIG_FILE")) places.emplace_back(file);
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != '\0') {
    places.push_back(fs::path(config) / "pip" / "pip.conf");
  }
  if (const char* home = std::getenv("HOME")) {
    places.push_back(fs::path(home) / ".config" / "pip" / "pip.conf");
    places.push_back(fs::path(home) / ".pip" / "pip.conf");
  }
  places.emplace_back("/etc/pip.conf");
  for (const fs::path& place : places) {
    if (std::string url = index_url_in(place); !url.empty()) return url;
  }
  return "https://pypi.org/simple";
}

Result<std::vector<IndexFile>> parse_index_page(const Page& page) {
  const bool json = page.content_type.ends_with("json") ||
                    (page.content_type.empty() && trim(page.body).starts_with('{'));
  WEFT_ASSIGN(auto files, json ? parse_json_page(page) : parse_html(page));
  if (files.empty()) return fail(ErrorCode::kCorrupt, "{}: lists no files", page.url);
  return files;
}

Result<std::vector<IndexFile>> list_package_files(const std::string& index,
                                                  const std::string& package,
                                                  const DownloadOptions& options) {
  std::string url = index;
  while (url.ends_with('/')) url.pop_back();
  url += "/" + package + "/";
  if (url.starts_with("file:")) url += "index.html";  // as pip does for a folder
  WEFT_ASSIGN(
      const Page page,
      fetch_page(url, "application/vnd.pypi.simple.v1+json, text/html;q=0.5, */*;q=0.1", options));
  return parse_index_page(page);
}

}  // namespace weft::model
