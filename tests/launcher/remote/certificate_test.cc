#include "launcher/remote/certificate.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "tests/support/catch.h"

namespace hvd::launcher {

TEST_CASE("a certificate is of today, has the job's name, and fits its key") {
  const Certificate made = make_certificate();
  BIO* text = BIO_new_mem_buf(made.certificate.data(), static_cast<int>(made.certificate.size()));
  X509* certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
  BIO_free(text);
  REQUIRE(certificate != nullptr);
  CHECK(X509_check_host(certificate, kCertificateName, 0, 0, nullptr) == 1);
  CHECK(X509_check_host(certificate, "localhost", 0, 0, nullptr) == 0);
  CHECK(X509_check_ca(certificate) == 0);
  std::time_t earlier = std::time(nullptr) - 60 * 60, later = std::time(nullptr) + 10 * 365 * 24 * 60 * 60L;
  CHECK(X509_cmp_time(X509_get0_notBefore(certificate), &earlier) < 0);
  CHECK(X509_cmp_time(X509_get0_notAfter(certificate), &later) > 0);

  text = BIO_new_mem_buf(made.key.data(), static_cast<int>(made.key.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(text, nullptr, nullptr, nullptr);
  BIO_free(text);
  REQUIRE(key != nullptr);
  CHECK(X509_check_private_key(certificate, key) == 1);
  CHECK(X509_verify(certificate, key) == 1);
  EVP_PKEY_free(key);
  X509_free(certificate);
}

TEST_CASE("no two certificates are alike") {
  const Certificate one = make_certificate(), other = make_certificate();
  CHECK(one.certificate != other.certificate);
  CHECK(one.key != other.key);
}

}  // namespace hvd::launcher
