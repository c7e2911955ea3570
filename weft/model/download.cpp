#include "weft/model/download.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

namespace weft::model {
namespace {

namespace fs = std::filesystem;

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
using CurlHandle = std::unique_ptr<CURL, CurlDeleter>;
struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

CurlHandle new_handle() {
  static std::once_flag once;  // curl_global_init must not run twice at a time
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  return CurlHandle(curl_easy_init());
}

// The state of one transfer, shared by curl's callbacks.
struct Transfer {
  CURL* curl = nullptr;
  const DownloadOptions* options = nullptr;
  std::string* body = nullptr;  // into memory ...
  std::FILE* file = nullptr;    // ... or into a file
  std::int64_t start = 0;       // bytes that the file held before
  std::int64_t received = 0;
  std::int64_t limit = 0;
  bool begun = false;
  bool too_long = false;
  bool disk_failed = false;
};

// Cuts a file opened for appending to nothing.
bool empty_file(std::FILE* file) {
  return std::fflush(file) == 0 && ::ftruncate(::fileno(file), 0) == 0;
}

// Whether this status carries the content asked for. A file: transfer has status 0.
bool good_status(long status) { return status == 0 || status == 200 || status == 206; }

std::size_t on_data(char* data, std::size_t, std::size_t size, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  long status = 0;
  curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
  if (!good_status(status)) return size;  // an error page; the status says enough
  transfer->begun = true;
  transfer->received += static_cast<std::int64_t>(size);
  if (transfer->start + transfer->received > transfer->limit) {
    transfer->too_long = true;
    return 0;
  }
  if (transfer->body != nullptr) {
    transfer->body->append(data, size);
    return size;
  }
  const std::size_t written = std::fwrite(data, 1, size, transfer->file);
  if (written != size) transfer->disk_failed = true;
  return written;
}

int on_progress(void* user, curl_off_t total, curl_off_t, curl_off_t, curl_off_t) {
  auto* transfer = static_cast<Transfer*>(user);
  long status = 0;
  curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
  if (transfer->options->progress && transfer->begun && good_status(status)) {
    transfer->options->progress(transfer->start + transfer->received,
                                total > 0 ? transfer->start + total : 0);
  }
  return 0;
}

void set_up(CURL* curl, const std::string& url, const DownloadOptions& options,
            Transfer& transfer) {
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https,file");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "weft/0.1");
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_seconds));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_seconds));
  if (!options.ca_bundle.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options.ca_bundle.c_str());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
}

// What a finished transfer means. kUnavailable and kDeadlineExceeded may be tried again.
Status judge(CURLcode code, CURL* curl, const std::string& url, const Transfer& transfer,
             const DownloadOptions& options) {
  if (transfer.disk_failed) {
    return fail(ErrorCode::kIo, "cannot write the download of {}: is the disk full?", url);
  }
  if (transfer.too_long) {
    return fail(ErrorCode::kCorrupt, "{} is longer than the {} bytes expected", url,
                transfer.limit);
  }
  if (code == CURLE_OPERATION_TIMEDOUT) {
    return fail(ErrorCode::kDeadlineExceeded, "{} sent nothing for {} s", url,
                options.stall_seconds);
  }
  if (code == CURLE_FILE_COULDNT_READ_FILE) {
    return fail(ErrorCode::kNotFound, "there is no file {}", url);
  }
  if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT) {
    return fail(ErrorCode::kInvalidArgument, "{} is not an http, https or file address", url);
  }
  if (code != CURLE_OK) {
    return fail(ErrorCode::kUnavailable, "cannot read {}: {}", url, curl_easy_strerror(code));
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (good_status(status)) return {};
  if (status == 404 || status == 410)
    return fail(ErrorCode::kNotFound, "{} does not exist (HTTP {})", url, status);
  if (status == 416)
    return fail(ErrorCode::kOutOfRange, "{} is shorter than what is already here", url);
  if (status >= 500 || status == 429 || status == 408) {
    return fail(ErrorCode::kUnavailable, "{} answered HTTP {}", url, status);
  }
  return fail(ErrorCode::kIo, "{} answered HTTP {}", url, status);
}

bool may_retry(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded;
}

// Runs `attempt` until it succeeds, fails for good, or `options.attempts` are used up.
template <class Attempt>
Status with_retries(const DownloadOptions& options, Attempt attempt) {
  int pause_ms = options.first_pause_ms;
  for (int i = 1;; ++i) {
    Status status = attempt();
    if (status || !may_retry(status.error()) || i >= options.attempts) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    pause_ms = std::min(pause_ms * 2, 8000);
  }
}

}  // namespace

Result<Page> fetch_page(const std::string& url, const std::string& accept,
                        const DownloadOptions& options) {
  Page page;
  WEFT_TRY(with_retries(options, [&]() -> Status {
    const CurlHandle curl = new_handle();
    if (!curl) return fail(ErrorCode::kInternal, "libcurl cannot start");
    page = {};
    Transfer transfer;
    transfer.curl = curl.get();
    transfer.options = &options;
    transfer.body = &page.body;
    transfer.limit = std::min<std::int64_t>(options.max_bytes, std::int64_t{64} << 20);
    set_up(curl.get(), url, options, transfer);
    curl_easy_setopt(curl.get(), CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(curl.get(), CURLOPT_ACCEPT_ENCODING, "");
    const std::string header = "Accept: " + accept;
    const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
        curl_slist_append(nullptr, header.c_str()), curl_slist_free_all);
    curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
    WEFT_TRY(judge(curl_easy_perform(curl.get()), curl.get(), url, transfer, options));
    const char* text = nullptr;
    curl_easy_getinfo(curl.get(), CURLINFO_EFFECTIVE_URL, &text);
    page.url = text != nullptr ? text : url;
    text = nullptr;
    curl_easy_getinfo(curl.get(), CURLINFO_CONTENT_TYPE, &text);
    page.content_type = text != nullptr ? text : "";
    page.content_type = page.content_type.substr(0, page.content_type.find_first_of("; "));
    std::ranges::transform(page.content_type, page.content_type.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return {};
  }));
  return page;
}

Status download_to(const std::string& url, const fs::path& part, const DownloadOptions& options) {
  return with_retries(options, [&]() -> Status {
    const CurlHandle curl = new_handle();
    if (!curl) return fail(ErrorCode::kInternal, "libcurl cannot start");
    const File file(std::fopen(part.c_str(), "ab"));
    if (!file)
      return fail(ErrorCode::kIo, "cannot write {}: {}", part.string(), std::strerror(errno));
    std::fseek(file.get(), 0, SEEK_END);
    Transfer transfer;
    transfer.curl = curl.get();
    transfer.options = &options;
    transfer.file = file.get();
    transfer.start = std::ftell(file.get());
    transfer.limit = options.max_bytes;
    set_up(curl.get(), url, options, transfer);
    if (transfer.start > 0) {
      curl_easy_setopt(curl.get(), CURLOPT_RESUME_FROM_LARGE,
                       static_cast<curl_off_t>(transfer.start));
    }
    CURLcode code = curl_easy_perform(curl.get());
    long status = 0;
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME || status == 416) {
      // The server cannot continue, or what is here is as long as the file or longer.
      if (!empty_file(file.get())) {
        return fail(ErrorCode::kIo, "cannot write {}: {}", part.string(), std::strerror(errno));
      }
      transfer = {curl.get(), &options, nullptr, file.get(), 0, 0, options.max_bytes};
      curl_easy_setopt(curl.get(), CURLOPT_RESUME_FROM_LARGE, curl_off_t{0});
      code = curl_easy_perform(curl.get());
    }
    if (std::fflush(file.get()) != 0) transfer.disk_failed = true;
    return judge(code, curl.get(), url, transfer, options);
  });
}

std::string ca_bundle_from_environment() {
  for (const char* name : {"PIP_CERT", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    const char* value = std::getenv(name);
    std::error_code error;
    if (value != nullptr && *value != '\0' && fs::is_regular_file(value, error)) return value;
  }
  return {};
}

Result<std::string> resolve_url(const std::string& base, const std::string& reference) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url(curl_url(), curl_url_cleanup);
  if (!url || curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK) {
    return fail(ErrorCode::kInvalidArgument, "'{}' is not an address", base);
  }
  const bool from_file = base.starts_with("file:");
  char* text = nullptr;
  if (curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK ||
      curl_url_get(url.get(), CURLUPART_URL, &text, 0) != CURLUE_OK) {
    return fail(ErrorCode::kInvalidArgument, "'{}' on the page {} is not an address", reference,
                base);
  }
  std::string resolved(text);
  curl_free(text);
  const bool web = resolved.starts_with("http://") || resolved.starts_with("https://");
  if (!web && !(from_file && resolved.starts_with("file:"))) {
    return fail(ErrorCode::kInvalidArgument,
                "the page {} points to {}, which is not an http or https address", base, resolved);
  }
  return resolved;
}

}  // namespace weft::model
