"""Settings of the sidecar, from its environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whetstone_api.vocabulary import REPORT_TOKEN_PATH, SECRETS_ROOT


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the sidecar finds what it works with.

    Args:
        host: Address to listen on; every address of the pod when empty.
        engine_url: Address of the engine in the same pod, without a path.
        desired_file: `DesiredState` as the mounted ConfigMap has it.
        kept_file: What the sidecar was told last; lives as long as the pod.
        adapters_dir: Folder shared with the engine, for copies of adapters.
        secrets_dir: Folder of the Secrets that adapters name, a folder each.
        token_file: File of the operator's token.
        report_url: The operator's endpoint for the server's reports; empty for none.
        report_token_file: Projected token for those reports.
        max_rank: Highest rank that the pod's engine loads; None where the desired state says it.
        timer_seconds: Time between two comparisons with the engine while nothing happens.
        busy_seconds: The same while the engine starts or requests drain.
        drain_seconds: Longest wait for the last request of an adapter that is to go.
        patience_seconds: How long clients are held back at first, where the engine must be idle for a probe.
        stall_look_seconds: Time between two looks at the engine's progress.
        stall_ask_seconds: Time without progress after which one token is asked for.
        stall_seconds: Time for which that request waits, without any progress, until the engine counts as stalled. It
            is above the time that clients are held back for at most, and above any single step of an engine.
        retry_seconds: First pause after a failed load; it doubles up to 300 s.
    """

    host: str = ""
    engine_url: str = "http://127.0.0.1:8000"
    desired_file: Path = Path("/etc/whetstone/desired/desired.json")
    kept_file: Path = Path("/tmp/desired.json")  # noqa: S108 - a volume of the pod
    adapters_dir: Path = Path("/adapters")
    secrets_dir: Path = Path(SECRETS_ROOT)
    token_file: Path = Path("/etc/whetstone/access/token")
    report_url: str = ""
    report_token_file: Path = Path(REPORT_TOKEN_PATH)
    max_rank: int | None = None
    timer_seconds: float = 5.0
    busy_seconds: float = 0.5
    drain_seconds: float = 30.0
    patience_seconds: float = 2.0
    stall_look_seconds: float = 5.0
    stall_ask_seconds: float = 30.0
    stall_seconds: float = 90.0
    retry_seconds: float = 5.0

    def token(self) -> str:
        """Return the operator's token, read anew each time; empty when the file is missing."""
        try:
            return self.token_file.read_text().strip()
        except OSError:
            return ""


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that the environment names, defaults for the rest."""
    env = os.environ if environment is None else environment
    default = Settings()
    return Settings(
        host=env.get("WHETSTONE_SIDECAR_HOST", ""),
        engine_url=env.get("WHETSTONE_ENGINE_URL", default.engine_url).rstrip("/"),
        desired_file=Path(env.get("WHETSTONE_DESIRED_FILE", default.desired_file)),
        kept_file=Path(env.get("WHETSTONE_KEPT_FILE", default.kept_file)),
        adapters_dir=Path(env.get("WHETSTONE_ADAPTERS_DIR", default.adapters_dir)),
        secrets_dir=Path(env.get("WHETSTONE_SECRETS_DIR", default.secrets_dir)),
        stall_look_seconds=float(env.get("WHETSTONE_STALL_LOOK_SECONDS", default.stall_look_seconds)),
        stall_ask_seconds=float(env.get("WHETSTONE_STALL_ASK_SECONDS", default.stall_ask_seconds)),
        stall_seconds=float(env.get("WHETSTONE_STALL_SECONDS", default.stall_seconds)),
        token_file=Path(env.get("WHETSTONE_TOKEN_FILE", default.token_file)),
        report_url=env.get("WHETSTONE_REPORT_URL", ""),
        report_token_file=Path(env.get("WHETSTONE_REPORT_TOKEN_FILE", default.report_token_file)),
        max_rank=int(env["WHETSTONE_MAX_RANK"]) if env.get("WHETSTONE_MAX_RANK") else None,
    )
