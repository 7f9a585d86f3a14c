"""What OpenSSL's verdict on a certificate means and what to do: X509_V_ERR_* of <openssl/x509_vfy.h>, by number.

SSLCertVerificationError: verify_code 10, verify_message "certificate has expired"
"""

from __future__ import annotations

import ssl

from sonde.rpc.certificates import SMALLEST_RSA, Flaw

_TRUST = "it must be signed by an authority of our ca.crt: are both from the same `sonde certs init`?"
_UNKNOWN = Flaw("issuer", "is not of an authority that ca.crt holds", _TRUST)
_LIST = "copy a new ca.crl from the authority; `sonde certs revoke` without a name writes one"
_RENEW = "renew it; or is a clock wrong?"

_VERDICTS = {
    2: _UNKNOWN,  # UNABLE_TO_GET_ISSUER_CERT
    18: _UNKNOWN,  # DEPTH_ZERO_SELF_SIGNED_CERT
    19: _UNKNOWN,  # SELF_SIGNED_CERT_IN_CHAIN
    20: _UNKNOWN,  # UNABLE_TO_GET_ISSUER_CERT_LOCALLY
    21: _UNKNOWN,  # UNABLE_TO_VERIFY_LEAF_SIGNATURE
    7: Flaw("signature", "is not signed by the authority of that name", _TRUST),
    9: Flaw("early", "is not valid yet", _RENEW),
    10: Flaw("expired", "has expired", _RENEW),
    23: Flaw("revoked", "is revoked: it is listed in ca.crl", "ask for a new certificate"),
    3: Flaw("list", "cannot be looked up: our ca.crl has no list of its authority", _LIST),
    8: Flaw("list", "cannot be looked up: our ca.crl is not signed by its authority", _LIST),
    11: Flaw("list", "cannot be looked up: our ca.crl is not valid yet", _LIST),
    12: Flaw("list", "cannot be looked up: our ca.crl has expired", _LIST),
    24: Flaw("issuer", "is signed by a certificate that is no authority's", _TRUST),
    79: Flaw("issuer", "is signed by a certificate that is no authority's", _TRUST),
    32: Flaw("issuer", "is signed by an authority without keyUsage keyCertSign", _TRUST),
    26: Flaw(
        "purpose", "is not for this use: extendedKeyUsage or keyUsage forbids it", "`sonde certs show` explains it"
    ),
    66: Flaw("key", "has a key that is too small", f"RSA of {SMALLEST_RSA} bits, P-256 or Ed25519 is needed"),
    67: Flaw("key", "is signed by an authority whose key is too small", f"RSA of {SMALLEST_RSA} bits is needed"),
    68: Flaw("digest", "is signed with a digest that is not safe, as MD5 and SHA-1 are", "sign it with SHA-256"),
    62: Flaw("name", "is for another host", "ask for the host by a name or address that its certificate carries"),
    64: Flaw("name", "is for another address", "ask for the host by a name or address that its certificate carries"),
}


def verdict(error: ssl.SSLCertVerificationError) -> Flaw:
    found = _VERDICTS.get(error.verify_code)
    return found or Flaw("refused", f"is refused: {error.verify_message}", "`sonde certs show` explains a certificate")
