"""Our Train phase beside a bare TRL script, measured inside the trainer's image."""

import json
import subprocess

from whetstone_dev.commands import run
from whetstone_dev.images import build_local
from whetstone_dev.places import CHECKOUT

from whetstone_bench.figures import Figure, spread


def training(rounds: int) -> list[Figure]:
    """Return speed, loss and checkpoint figures of so many paired rounds.

    Args:
        rounds: Rounds after the one that warms up.
    """
    container = run(["buildah", "from", build_local("trainer")]).strip()
    roots = ":".join(f"/src/{root}" for root in ("operator", "trainer", "tests"))
    variables = {"PYTHONPATH": roots, "HOME": "/tmp", "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = ["buildah", "run", "--runtime", "runc", "--isolation", "oci", "--network", "none"]
    command += ["--user", "65532:65532", "--volume", f"{CHECKOUT}:/src:ro", "--workingdir", "/src"]
    command += [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    command += [container, "--", "python3", "bench/training_pair.py", f"--rounds={rounds}"]
    try:
        done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    finally:
        run(["buildah", "rm", container])
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        spread("Train phase: speed / that of a bare TRL script", [one["bare"] / one["ours"] for one in found], ""),
        spread("the same: largest difference of a step's loss", [one["lossDifference"] for one in found], "", digits=6),
        spread("the same: seconds of the bare script", [one["bare"] for one in found], "s"),
        spread("one checkpoint more", [one["checkpointSeconds"] for one in found], "s"),
    ]
