"""What a place asks for, read from a mounted Secret."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from whetstone_api.source import Scheme
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.hiding import without_secrets

CA_KEY = "ca.crt"
KNOWN_KEYS: Mapping[Scheme, tuple[str, ...]] = {
    Scheme.HUB: ("HF_TOKEN", "HF_ENDPOINT", CA_KEY),
    Scheme.S3: (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        CA_KEY,
    ),
    Scheme.HTTPS: ("token", "username", "password", CA_KEY),
    Scheme.OCI: ("username", "password", ".dockerconfigjson", "plainHTTP", CA_KEY),
}
"""Keys that a Secret may have, by scheme; others are not read."""
_OPEN_KEYS = frozenset({"HF_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_REGION", "username", "plainHTTP", CA_KEY})
"""Keys that are no secrets; messages need them."""
_PAIRS: Mapping[Scheme, tuple[str, str]] = {
    Scheme.S3: ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    Scheme.HTTPS: ("username", "password"),
    Scheme.OCI: ("username", "password"),
}


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The keys of one Secret that a scheme knows.

    Args:
        values: Value by key.
        ca_file: File with the certificate authorities to trust instead of the system's; None for those.
        docker_config: File with logins of registries; None without.
    """

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: Path | None = None
    docker_config: Path | None = None

    def get(self, key: str) -> str | None:
        """Return a value, None where the Secret lacks it."""
        return self.values.get(key) or None

    def hidden(self, text: str) -> str:
        """Return a text without the secrets of these keys: a place may repeat in its answer what it was sent."""
        user, password = self.values.get("username", ""), self.values.get("password", "")
        basic = base64.b64encode(f"{user}:{password}".encode()).decode() if password else ""
        return without_secrets(text, (basic, *(value for key, value in self.values.items() if key not in _OPEN_KEYS)))


def missing_key(scheme: Scheme, keys: set[str]) -> str | None:
    """Return the key that a Secret lacks, None when it will do.

    Args:
        scheme: Scheme of the place.
        keys: Keys that the Secret has.
    """
    known = KNOWN_KEYS.get(scheme, ())
    pair = _PAIRS.get(scheme)
    if pair is not None and len(lacking := [key for key in pair if key not in keys]) == 1:
        return lacking[0]
    return None if keys & set(known) else known[0]


def read_credentials(scheme: Scheme, folder: Path | None) -> Credentials:
    """Read a mounted Secret.

    Args:
        scheme: Scheme of the place, which decides the keys.
        folder: Where the Secret is mounted; None for a place that asks for nothing.

    Raises:
        ArtifactError: `SECRET_NOT_FOUND` when Secret or key is missing.
    """
    if folder is None:
        return Credentials()
    try:
        present = {path.name for path in folder.iterdir() if path.is_file()}
    except OSError:
        present = set()
    if not present:
        raise ArtifactError(
            Reason.SECRET_NOT_FOUND, f"secretRef: Secret {folder.name} does not exist or is empty; create it"
        )
    lacking = missing_key(scheme, present)
    if lacking is not None:
        raise ArtifactError(
            Reason.SECRET_NOT_FOUND,
            f"secretRef: Secret {folder.name} has no key {lacking}; add it (a Secret for {scheme}:// may have"
            f" {', '.join(KNOWN_KEYS[scheme])})",
        )
    known = [key for key in KNOWN_KEYS[scheme] if key in present]
    return Credentials(
        values={key: (folder / key).read_text().strip() for key in known},
        ca_file=folder / CA_KEY if CA_KEY in known else None,
        docker_config=folder / ".dockerconfigjson" if ".dockerconfigjson" in known else None,
    )


def credentials_of_environment(scheme: Scheme, environment: Mapping[str, str]) -> Credentials:
    """Return what a user's shell has for a place: the keys that are variables, and Docker's logins.

    Args:
        scheme: Scheme of the place.
        environment: Variables of the process.
    """
    logins = Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    return Credentials(
        values={key: environment[key] for key in KNOWN_KEYS.get(scheme, ()) if key.isupper() and key in environment},
        docker_config=logins if scheme is Scheme.OCI and logins.is_file() else None,
    )
