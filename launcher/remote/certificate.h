// The TLS certificate with which hvdrun and the agents of a job authenticate each other. It is generated for the job;
// only they have its key. Both ends of a connection present it, and accept no other.
#pragma once

#include <string>

namespace hvd::launcher {

// Both in PEM format.
struct Certificate {
  std::string certificate;
  std::string key;
};

// The name in every job's certificate: possession of the key matters, not the host.
inline constexpr const char* kCertificateName = "hvd-job";

// Self-signed, P-256, valid for a hundred years. Throws Internal.
Certificate make_certificate();

}  // namespace hvd::launcher
