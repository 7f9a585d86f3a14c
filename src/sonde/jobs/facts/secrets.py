"""What must not be written down: values of variables, options and URLs that look like secrets.

    API_TOKEN=anything                          by its name
    HTTPS_PROXY=http://user:word@proxy:3128     by its form
    NOTE=ghp_16C7e42F292c6912E7710c838347Ae178  by how random it is

A name decides first. A value is suspected when a piece of it is long and random: letters of both cases mixed with
digits, or plain hexadecimal. Hashes in paths (Nix, Spack), UUIDs of devices and lists of hosts are none of these.
"""

from __future__ import annotations

import math
import re
from collections import Counter

REDACTED = "(redacted)"

_NAME = re.compile(
    r"passw(or)?d|passphrase|(^|[-_.])pass($|[-_.])|secret|token|credential|cookie|private|signature|"
    r"(api|access|auth|account|encryption|ssh|gpg|license)[-_.]?key|(^|[-_.])(key|pwd|auth|authorization|dsn|sas|pat)$",
    re.IGNORECASE,
)
_FORM = re.compile(
    r"://[^/\s:@]+:[^/\s@]+@|-----BEGIN |\beyJ[A-Za-z0-9_-]{8}"
    r"|\b(?:sk-|ghp_|gho_|ghs_|github_pat_|glpat-|hf_|xox[abprs]-)"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bBearer ",
)
_PIECE = re.compile(r"[A-Za-z0-9+_]{20,}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{32,}")
_RANDOM_BITS = 3.5  # per character; words joined by underscores have fewer, or no digits among them
_LOWER_BITS = 3.9


def is_secret(name: str, value: str) -> bool:
    """Whether a named value is to be kept to oneself."""
    return bool(value) and (_NAME.search(name) is not None or looks_secret(value))


def looks_secret(value: str) -> bool:
    if _FORM.search(value):
        return True
    in_path = "/" in value
    return any(_is_random(piece, in_path) for piece in _PIECE.findall(value))


def _is_random(piece: str, in_path: bool) -> bool:
    if _HEXADECIMAL.fullmatch(piece):
        return not in_path
    digits = any(map(str.isdigit, piece))
    upper, lower = any(map(str.isupper, piece)), any(map(str.islower, piece))
    if digits and upper and lower:
        return entropy(piece) >= _RANDOM_BITS
    # Of one case: the hash in the name of a directory, unless it stands alone.
    return digits and (upper or lower) and not in_path and "_" not in piece and entropy(piece) >= _LOWER_BITS


def entropy(text: str) -> float:
    """Shannon's, in bits per character."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


def redacted_options(text: str, separator: str) -> str:
    """`a=1,password=x` with the secrets taken out; the rest as it was."""
    parts = []
    for part in text.split(separator):
        name, equals, value = part.partition("=")
        secret = is_secret(name, value) if equals else looks_secret(part)
        parts.append((f"{name}={REDACTED}" if equals else REDACTED) if secret else part)
    return separator.join(parts)
