// A TCP client that sends the very bytes it is told to, for tests of servers.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace weft::test {

// Connected to a port of this machine; closes when destroyed. Waits at most 20 s.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), held_(std::move(other.held_)) {}
  RawClient& operator=(RawClient&&) = delete;
  ~RawClient() {
    if (socket_ >= 0) ::close(socket_);
  }

  // What the other side no longer takes is dropped.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // All up to and with `end`; what came after it is kept for the next call.
  std::string read_until(std::string_view end) {
    std::size_t at = 0;
    while ((at = held_.find(end)) == std::string::npos && receive(kPatience)) {
    }
    EXPECT_NE(at, std::string::npos) << "no " << end << " in: " << held_;
    const std::size_t size = at == std::string::npos ? held_.size() : at + end.size();
    std::string out = held_.substr(0, size);
    held_.erase(0, size);
    return out;
  }
  // All until the server ends the connection.
  std::string read_to_end() {
    while (receive(kPatience)) {
    }
    EXPECT_TRUE(ended_) << "the connection is still open";
    return std::exchange(held_, {});
  }
  // Has the server ended the connection, within so long?
  bool ended(std::chrono::milliseconds wait) {
    (void)receive(wait);
    return ended_;
  }
  bool has_answer() const { return !held_.empty(); }
  // Ends the connection with a reset instead of an orderly close.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(socket_, -1));
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{20'000};

  // More bytes, or false at the end or after `wait`.
  bool receive(std::chrono::milliseconds wait) {
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    if (ended_ || ::poll(&ready, 1, static_cast<int>(wait.count())) <= 0) return false;
    char bytes[4096];
    const ssize_t size = ::recv(socket_, bytes, sizeof bytes, 0);
    if (size <= 0) {
      ended_ = true;
      return false;
    }
    held_.append(bytes, static_cast<std::size_t>(size));
    return true;
  }

  int socket_;
  bool ended_ = false;
  std::string held_;
};

}  // namespace weft::test
