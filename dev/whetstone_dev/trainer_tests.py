"""Run the trainer's tests inside the trainer's image: it has torch, which the development environment lacks."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from whetstone_dev.commands import run
from whetstone_dev.images import build_local
from whetstone_dev.places import BUILD, CHECKOUT
from whetstone_dev.progress import stage

_TEST_PACKAGES = ("pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-aiohttp==1.1.1")


def run_trainer_tests(arguments: Sequence[str]) -> int:
    """Build the image, run pytest in a container of it with the checkout mounted, return pytest's exit code."""
    image = build_local("trainer")
    libraries = BUILD / "trainer-test-libraries"
    if not libraries.exists():
        uv = Path(sys.prefix) / "bin" / "uv"
        with stage("Fetching the test libraries"):
            run([uv, "pip", "install", "--quiet", "--system-certs", "--target", libraries, *_TEST_PACKAGES])
    container = run(["buildah", "from", image]).strip()
    roots = ("operator", "server", "trainer", "tests", "dev")
    python_path = ":".join(f"/src/{root}" for root in roots) + ":/test-libraries"
    command = [
        "buildah",
        "run",
        "--runtime",
        "runc",
        "--isolation",
        "oci",
        "--network",
        "none",
        "--user",
        "65532:65532",
    ]
    command += ["--volume", f"{CHECKOUT}:/src:ro", "--volume", f"{libraries}:/test-libraries:ro"]
    command += ["--env", f"PYTHONPATH={python_path}", "--env", "PYTHONDONTWRITEBYTECODE=1", "--env", "HOME=/tmp"]
    command += ["--workingdir", "/src", container, "--", "python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    try:
        return subprocess.run([*command, "tests/unit/trainer", *arguments], check=False).returncode
    finally:
        run(["buildah", "rm", container])
