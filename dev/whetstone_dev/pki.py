"""Certificates, keys and kubeconfigs of a development cluster, made with openssl.

Python 3.13 checks authorities strictly, so the authority states its key usage and every leaf names its issuer.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whetstone_dev.commands import run

_DAYS = "3650"


@dataclass(frozen=True)
class Pki:
    """A folder with one cluster authority, one front-proxy authority, the service account key and the leaves."""

    folder: Path

    def authority(self, name: str = "ca") -> Path:
        """Make the named certificate authority unless it is there; returns its certificate's path."""
        certificate = self.folder / f"{name}.crt"
        if not certificate.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._key(name)
            run(
                [
                    *("openssl", "req", "-x509", "-new", "-key", self.folder / f"{name}.key", "-out", certificate),
                    *("-days", _DAYS, "-subj", f"/CN=whetstone-{name}"),
                    *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
                ]
            )
        return certificate

    def leaf(self, name: str, *, subject: str, names: Sequence[str] = (), issuer: str = "ca") -> tuple[Path, Path]:
        """Make a certificate for `subject` unless it is there; returns the paths of certificate and key.

        `names` are subject alternative names as openssl writes them, such as `IP:10.0.0.1` or `DNS:localhost`.
        """
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if certificate.exists():
            return certificate, key
        self._key(name)
        extensions = [
            "authorityKeyIdentifier=keyid",
            "subjectKeyIdentifier=hash",
            "keyUsage=critical,digitalSignature,keyEncipherment",
            "extendedKeyUsage=clientAuth,serverAuth",
        ]
        if names:
            extensions.append("subjectAltName=" + ",".join(names))
        extension_file = self.folder / f"{name}.ext"
        extension_file.write_text("\n".join(extensions) + "\n")
        request = run(["openssl", "req", "-new", "-key", key, "-subj", subject])
        run(
            [
                *("openssl", "x509", "-req", "-CA", self.folder / f"{issuer}.crt"),
                *("-CAkey", self.folder / f"{issuer}.key"),
                *("-CAserial", self.folder / f"{issuer}.srl", "-CAcreateserial"),
                *("-days", _DAYS, "-extfile", extension_file, "-out", certificate),
            ],
            feed=request,
        )
        return certificate, key

    def service_account_key(self) -> tuple[Path, Path]:
        """Make the key pair that signs service account tokens; returns the paths of private and public key."""
        private, public = self.folder / "sa.key", self.folder / "sa.pub"
        if not public.exists():
            self._key("sa")
            run(["openssl", "pkey", "-in", private, "-pubout", "-out", public])
        return private, public

    def kubeconfig(self, name: str, *, subject: str, server: str) -> Path:
        """Write a kubeconfig with a client certificate for `subject`; returns its path."""
        certificate, key = self.leaf(name, subject=subject)
        path = self.folder / f"{name}.conf"
        path.write_text(kubeconfig_text(server=server, authority=self.authority(), certificate=certificate, key=key))
        path.chmod(0o600)
        return path

    def _key(self, name: str) -> None:
        path = self.folder / f"{name}.key"
        run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path])
        path.chmod(0o600)


def kubeconfig_text(*, server: str, authority: Path, certificate: Path, key: Path) -> str:
    """A kubeconfig (JSON, which is YAML too) with everything embedded, for one user of one cluster."""

    def embedded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "whetstone", "cluster": {"server": server, "certificate-authority-data": embedded(authority)}}
        ],
        "users": [
            {
                "name": "whetstone",
                "user": {"client-certificate-data": embedded(certificate), "client-key-data": embedded(key)},
            }
        ],
        "contexts": [{"name": "whetstone", "context": {"cluster": "whetstone", "user": "whetstone"}}],
        "current-context": "whetstone",
    }
    return json.dumps(document, indent=1) + "\n"
