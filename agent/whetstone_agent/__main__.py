"""`python -m whetstone_agent --config PATH`: the runner's container."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR, BenchmarkConfig, RunConfig, ToolUseConfig
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.vocabulary import CONFIG_PATH, TERMINATION_PATH, Reason
from whetstone_api.wire import WireModel
from whetstone_artifacts.errors import ArtifactError, OutputLockedError
from whetstone_artifacts.reporting import Reporter, write_termination

from whetstone_agent.disk import is_disk_full
from whetstone_agent.failure import RunFailure
from whetstone_agent.run import run_until_stopped

log = logging.getLogger("whetstone_agent")

EXIT_RETRY = 1
"""The Job's back-off limit decides whether there is another try."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark and return the exit code: 0, `EXIT_USER_ERROR`, `EXIT_STOPPED`, or `EXIT_RETRY`."""
    parser = argparse.ArgumentParser(prog="whetstone_agent", description="Run a benchmark as its config says.")
    parser.add_argument("--config", type=Path, default=Path(CONFIG_PATH), help=f"default: {CONFIG_PATH}")
    parser.add_argument(
        "--termination", type=Path, default=Path(TERMINATION_PATH), help=f"where the report goes; {TERMINATION_PATH}"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    report = _run(options.config)
    write_termination(report, options.termination)
    log.info("%s %s: %s", report.outcome, report.reason, report.message)
    if report.outcome is Outcome.SUCCEEDED:
        return 0
    if report.reason == Reason.RUNNING:
        return EXIT_STOPPED
    return EXIT_USER_ERROR if report.outcome is Outcome.FAILED else EXIT_RETRY


def _run(path: Path) -> TerminationReport:
    try:
        config = _read_config(path.read_bytes())
    except (OSError, ValidationError) as error:
        message = f"the runner's configuration {path} cannot be read: {error}"
        return TerminationReport(outcome=Outcome.FAILED, reason=Reason.INVALID_SPEC, message=message)
    reporter = Reporter(url=config.report_url)
    try:
        return asyncio.run(run_until_stopped(config, reporter))
    except RunFailure as failure:
        return TerminationReport(outcome=failure.outcome, reason=failure.reason, message=failure.message)
    except ArtifactError as error:
        outcome = Outcome.RETRY if isinstance(error, OutputLockedError) else Outcome.FAILED
        return TerminationReport(outcome=outcome, reason=error.reason, message=error.message)
    except Exception as error:
        log.exception("the run failed")
        if is_disk_full(error):
            message = (
                f"the volume of spec.output ({config.output_uri}) is full; finished trials are kept: make room there,"
                " and the next try goes on"
            )
            return TerminationReport(outcome=Outcome.RETRY, reason=Reason.DISK_FULL, message=message)
        message = f"{type(error).__name__}: {error}"
        return TerminationReport(outcome=Outcome.RETRY, reason=Reason.INTERNAL_ERROR, message=message)
    finally:
        reporter.close()


class _Suite(WireModel):
    """What tells configurations apart."""

    tool_use: dict[str, Any] | None = None


def _read_config(content: bytes) -> RunConfig:
    """Return the configuration, of whichever suite; raises `ValidationError` for what is none."""
    kind = ToolUseConfig if _Suite.model_validate_json(content).tool_use is not None else BenchmarkConfig
    return kind.model_validate_json(content)


if __name__ == "__main__":
    sys.exit(main())
