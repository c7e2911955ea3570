#include "weft/comm/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstring>
#include <string>

#include "weft/base/result.h"

namespace weft::comm {

Nonce fresh_nonce() {
  Nonce nonce;
  WEFT_CHECK(::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

Proof prove(std::string_view secret, std::string_view purpose, const HandshakeTerms& terms) {
  static_assert(std::has_unique_object_representations_v<HandshakeTerms>);
  std::string text(purpose);
  text.push_back('\0');
  text.append(reinterpret_cast<const char*>(&terms), sizeof(terms));
  Proof proof;
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(proof.data()), &size);
  WEFT_CHECK(size == proof.size());
  return proof;
}

bool equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::uint64_t session_of(std::string_view secret, const HandshakeTerms& terms) {
  const Proof proof = prove(secret, "session", terms);
  std::uint64_t session = 0;
  std::memcpy(&session, proof.data(), sizeof(session));
  return session == 0 ? 1 : session;
}

}  // namespace weft::comm
