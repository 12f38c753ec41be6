"""The user's own `kubectl`: it knows the user's cluster, login and plug-ins."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

type Object = dict[str, Any]


class KubectlError(Exception):
    """The cluster refused or cannot be reached; the message is kubectl's own."""


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """One namespace of one cluster.

    Args:
        program: Path of kubectl.
        options: Options that name the cluster and the namespace.
    """

    program: str
    options: tuple[str, ...] = ()

    @classmethod
    def found(cls, *, namespace: str | None, kubeconfig: str | None, context: str | None) -> "Kubectl":
        """Return the kubectl of the PATH.

        Raises:
            KubectlError: There is none.
        """
        program = shutil.which("kubectl")
        if program is None:
            raise KubectlError("kubectl is not on the PATH; install it, as your cluster's documentation says")
        given = {"--namespace": namespace, "--kubeconfig": kubeconfig, "--context": context}
        return cls(program=program, options=tuple(f"{name}={value}" for name, value in given.items() if value))

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl to its end and return what it wrote.

        Raises:
            KubectlError: It failed.
        """
        done = subprocess.run(  # noqa: S603 - no shell, and the user's own program
            self._command(arguments), input=stdin, capture_output=True, text=True, errors="surrogateescape", check=False
        )
        if done.returncode != 0:
            raise KubectlError(failure(done.stderr))
        return done.stdout

    def namespace(self) -> str:
        """Return the namespace that kubectl works in when none is named."""
        return self.run("config", "view", "--minify", "--output=jsonpath={..namespace}").strip() or "default"

    def get(self, *arguments: str) -> Object:
        """Return an object, or a list of them.

        Raises:
            KubectlError: It does not exist or may not be read.
        """
        found: Object = json.loads(self.run("get", *arguments, "--output=json"))
        return found

    def create(self, obj: Object) -> None:
        """Create an object.

        Raises:
            KubectlError: The cluster refuses it.
        """
        self.run("create", "--filename=-", stdin=json.dumps(obj))

    def open(self, *arguments: str, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start kubectl and return it running, its output to be read as bytes.

        Args:
            arguments: Its arguments.
            errors: Gets what it complains about.
        """
        return subprocess.Popen(  # noqa: S603 - no shell, and the user's own program
            self._command(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [self.program, *self.options, *arguments]


def failure(text: str) -> str:
    """Return kubectl's complaint in one line."""
    return " ".join(text.split()).removeprefix("Error from server ").removeprefix("error: ") or "kubectl failed"
