// What a job's hvdrun and its agents prove to each other by TLS that they belong to it: one certificate, made for the
// job, whose key all of them have and nobody else. Both ends of a connection show it, and take none but it.
#pragma once

#include <string>

namespace hvd::launcher {

// PEM both.
struct Certificate {
  std::string certificate;
  std::string key;
};

// The name in every job's certificate: who has the key matters, and not on which host.
inline constexpr const char* kCertificateName = "hvd-job";

// Self-signed, P-256, of today and for a hundred years. Throws Internal.
Certificate make_certificate();

}  // namespace hvd::launcher
