// Result<T>: a value or an Error. Every function of Weft that can fail for a
// reason outside the program returns one; exceptions do not cross a room.
#pragma once

#include <fmt/format.h>

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// What kind of failure it is, for callers that act on it (HTTP status, exit
// code, retry or not).
enum class ErrorCode {
  kInvalidArgument,    // the caller's input is wrong; the sentence says which and what to do
  kNotFound,           // a file, key or name does not exist
  kCorrupt,            // data is not what its format or digest promises
  kUnsupported,        // valid, but not something Weft does
  kOutOfRange,         // a number or offset outside its limits
  kResourceExhausted,  // memory, disk, queue or time budget
  kDeadlineExceeded,   // a wait ran past its deadline
  kCancelled,          // somebody asked to stop
  kUnavailable,        // a peer or service is not there now; trying again may help
  kIo,                 // the operating system refused
  kInternal,           // a defect of Weft
};

std::string_view to_string(ErrorCode code);

// An error is a sentence for a person: it names the file, field or rank and
// says what to do. `context` is added by callers on the way up, outermost first.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // The same error with "what: " before its sentence.
  Error in(std::string_view what) const { return {code, fmt::format("{}: {}", what, message)}; }
};

template <class T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

// fail(code, "format {}", args...) makes the error side of any Result.
template <class... Args>
std::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

[[noreturn]] void check_failed(const char* file, int line, const char* what,
                               const std::string& message);

}  // namespace weft

// A programming error: prints the place and aborts. Never for outside input.
#define WEFT_CHECK(condition, ...)                                                         \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::weft::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)

#define WEFT_CONCAT_INNER(a, b) a##b
#define WEFT_CONCAT(a, b) WEFT_CONCAT_INNER(a, b)

// Returns the error of `expression` from the enclosing function, if it failed.
#define WEFT_TRY(expression)                                                  \
  do {                                                                        \
    auto weft_status = (expression);                                          \
    if (!weft_status) return std::unexpected(std::move(weft_status).error()); \
  } while (false)

// WEFT_ASSIGN(auto x, f()): declares x from a Result, or returns its error.
#define WEFT_ASSIGN(declaration, expression) \
  WEFT_ASSIGN_INNER(WEFT_CONCAT(weft_result_, __LINE__), declaration, expression)
#define WEFT_ASSIGN_INNER(name, declaration, expression)      \
  auto name = (expression);                                   \
  if (!name) return std::unexpected(std::move(name).error()); \
  declaration = std::move(*name)
