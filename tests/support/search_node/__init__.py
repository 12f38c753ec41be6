"""A real node of Elasticsearch on this machine: version 7.10.2, the last one whose parts are published one by one."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

from whetstone_dev import packages
from whetstone_dev.commands import run

HERE = Path(__file__).parent
MEMORY = "-Xmx512m"


@cache
def _jars() -> str:
    """Return the class path of Elasticsearch. Maven keeps what it has fetched, and asks nobody for it again."""
    packages.install(packages.JAVA)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "classpath"
        run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", goal, f"-Dmdep.outputFile={listed}"])
        return listed.read_text().strip()


def _classes(folder: Path) -> str:
    """Return the class path of Elasticsearch and of the program that starts a node."""
    path = f"{_jars()}:{folder}"
    run(["javac", "-cp", path, "-d", folder, HERE / "SearchNode.java"])
    return path


@contextmanager
def search_node(folder: Path) -> Iterator[str]:
    """Run a node, and yield its URL.

    Args:
        folder: For its program, its data and its log.
    """
    command = ["java", MEMORY, "-cp", _classes(folder), "SearchNode", str(folder)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{_port(process.stdout, folder / 'log')}"
        finally:
            process.kill()
            process.communicate()


def _port(said: IO[str], log: Path) -> int:
    """Wait until the node is there, and return its port."""
    for line in said:
        if line.startswith("port "):
            return int(line.removeprefix("port "))
    raise AssertionError(f"the node ended: {log.read_text()[-2000:]}")
