// HTTP(S) and file: downloads by libcurl: small pages into memory, large files into
// a .part file that a later call continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "weft/base/result.h"

namespace weft::model {

struct DownloadOptions {
  std::string ca_bundle;  // empty: the system's
  int connect_seconds = 20;
  int stall_seconds = 30;    // without a byte for so long, an attempt ends
  int attempts = 6;          // transport failures and 5xx; each continues the last
  int first_pause_ms = 500;  // before the second attempt; doubles
  std::int64_t max_bytes = std::int64_t{1} << 40;
  // Called from the transfer, at most a few times a second. total 0: unknown.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

struct Page {
  std::string body;
  std::string content_type;  // lower case, without parameters
  std::string url;           // after redirects
};

// A page of at most `max_bytes` (and 64 MiB). `accept` is the Accept header. kNotFound for 404 and
// 410, kUnavailable for transport failures and 5xx, kDeadlineExceeded for stalls.
Result<Page> fetch_page(const std::string& url, const std::string& accept,
                        const DownloadOptions& options);

// Downloads `url` to `part`, continuing what is there with a Range request (from
// the start where the server does not honour it). On return the file is
// complete by the server's own length; check its digest. The part stays on failure.
Status download_to(const std::string& url, const std::filesystem::path& part,
                   const DownloadOptions& options);

// PIP_CERT, SSL_CERT_FILE, CURL_CA_BUNDLE or REQUESTS_CA_BUNDLE, the first that names
// an existing file; else empty.
std::string ca_bundle_from_environment();

// `reference` resolved against `base`; kInvalidArgument when the result is not an
// http, https or file address, or when an http page points to a file.
Result<std::string> resolve_url(const std::string& base, const std::string& reference);

}  // namespace weft::model
