"""What must not leave a cluster is taken out of objects and logs before anything is written. Pure.

Three nets, one behind the other: a Secret keeps the names of its keys only; values of the Secrets that were read are
removed wherever they turn up, as text or in base64; and what looks like a credential is removed even where nobody knows
its value.
"""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from whetstone_artifacts.hiding import LEAST_HIDDEN

from whetstone_cli.kubectl import Object

REMOVED: Final = "<removed>"
_DROPPED_ANNOTATIONS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)
_TELLING: Final = r"token|secret|passw(?:or)?d|credentials?|api[_-]?key|access[_-]?key|private[_-]?key"
_TELLING_NAME: Final = re.compile(rf"(?i)(?:{_TELLING}|_pat|_key)$")
_TELLING_TEXT: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\b(?:sk|pk|ghp|gho|glpat|xox[abp])[-_][\w-]{16,}"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"(?i)(?<=\bbearer )[\w.~+/=-]{16,}"),
    re.compile(r"(?i)(?<=authorization: basic )\S+"),
    re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"),
)
_TELLING_PAIR: Final = re.compile(rf"""(?i)((?:{_TELLING})["']?\s*[=:]\s*["']?)(?!{REMOVED})([^\s"',;}}&]{{6,}})""")


class Redactor:
    """Takes secrets out.

    Args:
        values: Values of Secrets that are known.
    """

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.learn(values)

    def learn(self, values: Iterable[bytes]) -> None:
        """Know further values of Secrets, line by line too: a log shows a file's lines one at a time."""
        for value in values:
            text = value.decode(errors="replace")
            forms = [text, base64.b64encode(value).decode(), *text.splitlines()]
            self._known |= {form.strip() for form in forms if len(form.strip()) >= LEAST_HIDDEN}
        ordered = sorted(self._known, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._pattern is not None:
            text = self._pattern.sub(REMOVED, text)
        for pattern in _TELLING_TEXT:
            text = pattern.sub(REMOVED, text)
        return _TELLING_PAIR.sub(rf"\1{REMOVED}", text)

    def object(self, obj: Mapping[str, Any]) -> Object:
        """Return an object as the API server has it, without secrets and without what only the API server needs."""
        metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
        if notes := metadata.get("annotations"):
            metadata["annotations"] = {name: text for name, text in notes.items() if name not in _DROPPED_ANNOTATIONS}
        whole = {**obj, "metadata": metadata}
        if obj.get("kind") == "Secret":
            whole = {name: value for name, value in whole.items() if name not in ("data", "stringData")}
            whole["keys"] = dict.fromkeys(sorted(obj.get("data") or {}), REMOVED)
        cleaned: Object = self._node(whole)
        return cleaned

    def _node(self, node: Any) -> Any:
        if isinstance(node, Mapping):
            if "value" in node and _TELLING_NAME.search(str(node.get("name", ""))):
                node = {**node, "value": REMOVED}
            return {name: self._member(str(name), value) for name, value in node.items()}
        if isinstance(node, list):
            return [self._node(item) for item in node]
        return self.text(node) if isinstance(node, str) else node

    def _member(self, name: str, value: Any) -> Any:
        return REMOVED if isinstance(value, str) and _TELLING_NAME.search(name) else self._node(value)


def secret_names(objects: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return namespace and name of each Secret that objects name, wherever in them.

    Args:
        objects: Objects of our kinds, and pods.
    """
    return {
        (str(obj["metadata"].get("namespace", "")), name)
        for obj in objects
        for name in _named({part: value for part, value in obj.items() if part in ("spec", "imagePullSecrets")})
    }


def _named(node: Any) -> Iterable[str]:
    if isinstance(node, list):
        for item in node:
            yield from _named(item)
    if not isinstance(node, Mapping):
        return
    for field, value in node.items():
        refers = field.lower().endswith(("secretref", "secretkeyref")) or field == "secret"
        if refers and isinstance(value, Mapping) and (name := value.get("name") or value.get("secretName")):
            yield str(name)
        if field == "imagePullSecrets":
            yield from (str(item["name"]) for item in value if "name" in item)
        yield from _named(value)
