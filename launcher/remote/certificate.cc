#include "launcher/remote/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

template <auto kFree>
struct Free {
  template <typename Object>
  void operator()(Object* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using X509Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Memory = std::unique_ptr<BIO, Free<BIO_free_all>>;

constexpr long kDay = 24L * 60 * 60;
constexpr int kDaysValid = 36500;

void require(bool success, const char* what) {
  if (success) return;
  std::array<char, 256> cause{};
  ERR_error_string_n(ERR_get_error(), cause.data(), cause.size());
  throw Internal("cannot make the job's certificate: " + std::string(what) + ": " + cause.data());
}

// 64 random bits, positive.
void set_serial(X509* certificate) {
  std::uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "random bytes");
  require(ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial) == 1, "serial number");
}

void set_names(X509* certificate) {
  X509_NAME* name = X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>(kCertificateName);
  require(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1, "name");
  require(X509_set_issuer_name(certificate, name) == 1, "issuer");
}

void add_extension(X509* certificate, int nid, const std::string& value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str()));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, value.c_str());
}

// Valid from a day ago, because the hosts' clocks may differ.
X509Certificate make_x509(EVP_PKEY* key) {
  X509Certificate certificate(X509_new());
  require(certificate != nullptr, "memory");
  X509* x509 = certificate.get();
  require(X509_set_version(x509, X509_VERSION_3) == 1, "version");
  set_serial(x509);
  set_names(x509);
  require(X509_gmtime_adj(X509_getm_notBefore(x509), -kDay) != nullptr, "time");
  require(X509_time_adj_ex(X509_getm_notAfter(x509), kDaysValid, 0, nullptr) != nullptr, "time");
  require(X509_set_pubkey(x509, key) == 1, "public key");
  add_extension(x509, NID_basic_constraints, "critical,CA:FALSE");  // must not sign other certificates
  add_extension(x509, NID_subject_alt_name, std::string("DNS:") + kCertificateName);
  require(X509_sign(x509, key, EVP_sha256()) > 0, "signature");
  return certificate;
}

std::string text_of(BIO* memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory, &bytes);
  require(size > 0, "PEM");
  return {bytes, static_cast<std::size_t>(size)};
}

}  // namespace

Certificate make_certificate() {
  const Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "key");
  const X509Certificate certificate = make_x509(key.get());
  const Memory certificate_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_secmem()));
  require(certificate_text && key_text, "memory");
  require(PEM_write_bio_X509(certificate_text.get(), certificate.get()) == 1, "PEM");
  require(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1, "PEM");
  return {.certificate = text_of(certificate_text.get()), .key = text_of(key_text.get())};
}

}  // namespace hvd::launcher
