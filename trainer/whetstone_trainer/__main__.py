"""`python -m whetstone_trainer {prepare|train|merge}`: the program of a training Job's container."""

import argparse
import logging
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError
from whetstone_api.jobs import EXIT_STOPPED, EXIT_USER_ERROR, METRICS_PORT, TrainingConfig
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.vocabulary import CONFIG_PATH, REPORT_TOKEN_PATH, TERMINATION_PATH, Reason
from whetstone_artifacts.errors import ArtifactError, OutputLockedError
from whetstone_artifacts.reporting import Reporter, write_termination

from whetstone_trainer.distributed import WORKER_VARIABLE, SilentReporter, find_place, is_worker
from whetstone_trainer.errors import NoRoomError, StoppedError, UserError, outcome_of
from whetstone_trainer.progress import Progress
from whetstone_trainer.stages import launch_train, run_merge, run_prepare, run_train
from whetstone_trainer.stopping import StopSignal
from whetstone_trainer.tracking import Tracking
from whetstone_trainer.watchdog import Watchdog

log = logging.getLogger("whetstone_trainer")

STAGES = {"prepare": run_prepare, "train": run_train, "merge": run_merge}
EXIT_RETRY = 75
"""`EX_TEMPFAIL` of sysexits.h: the Job starts another pod."""
EXIT_CODES = {Outcome.SUCCEEDED: 0, Outcome.FAILED: EXIT_USER_ERROR, Outcome.RETRY: EXIT_RETRY}


def main(arguments: list[str] | None = None) -> int:
    """Run one stage and return the exit code: 0, `EXIT_USER_ERROR`, `EXIT_STOPPED` or `EXIT_RETRY`."""
    parser = argparse.ArgumentParser(prog="whetstone_trainer", description=__doc__)
    parser.add_argument("stage", choices=sorted(STAGES))
    parser.add_argument("--config", default=CONFIG_PATH, type=Path)
    parser.add_argument("--token-path", default=REPORT_TOKEN_PATH)
    parser.add_argument("--termination-path", default=TERMINATION_PATH)
    parser.add_argument("--metrics-port", default=METRICS_PORT, type=int, help="0 serves no metrics")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Everything is on local disks; without this, libraries ask the hub about local folders.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # The variables of Kubeflow's protocol are there for other trainers; this one reports more by itself.
    os.environ.setdefault("DISABLE_KUBEFLOW_INTEGRATION", "TRUE")
    # OpenMP's threads spin while they wait: on a core that others use too, small layers get eight times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    options.arguments = list(sys.argv[1:] if arguments is None else arguments)
    if is_worker():
        options.termination_path = Path(os.environ[WORKER_VARIABLE]) / os.environ["RANK"]
    report = run(options)
    log.log(logging.INFO if report.outcome == Outcome.SUCCEEDED else logging.ERROR, "%s", report.message)
    write_termination(report, options.termination_path)
    # Of several processes, the report of one stands for all.
    stopped = report.outcome is Outcome.RETRY and report.reason == Reason.PROGRESSING
    return EXIT_STOPPED if stopped else EXIT_CODES[report.outcome]


def run(options: argparse.Namespace) -> TerminationReport:
    """Run the stage that the options name and turn every end into a report."""
    stop, tracking = StopSignal(), Tracking()
    report = _run(options, stop, tracking)
    with stop.deferred():
        return tracking.close(report)


def _run(options: argparse.Namespace, stop: StopSignal, tracking: Tracking) -> TerminationReport:
    reporter: Reporter | None = None
    try:
        stop.install()
        config = TrainingConfig.model_validate_json(options.config.read_bytes())
        if options.stage == "train" and config.world.ranks > 1 and not is_worker():
            return launch_train(config, options.arguments, token_path=options.token_path)
        first = not is_worker() or find_place(config.world).is_first
        reporter = Reporter(url=config.report_url, token_path=options.token_path) if first else SilentReporter()
        watchdog = Watchdog(config.stall_seconds, partial(tell_stall, options.termination_path))
        progress = Progress(reporter, watchdog=watchdog, tracking=tracking)
        if options.metrics_port and first:
            progress.serve(options.metrics_port)
        return STAGES[options.stage](config, progress, stop)
    except OutputLockedError as error:
        return TerminationReport(outcome=Outcome.RETRY, reason=error.reason, message=error.message)
    except (UserError, ArtifactError) as error:
        return TerminationReport(outcome=outcome_of(error.reason), reason=error.reason, message=error.message)
    except ValidationError as error:
        return TerminationReport(
            outcome=Outcome.FAILED, reason=Reason.INTERNAL_ERROR, message=f"{options.config} is not understood: {error}"
        )
    except NoRoomError as error:
        return TerminationReport(outcome=Outcome.RETRY, reason=Reason.DISK_FULL, message=str(error))
    except StoppedError as error:
        return TerminationReport(outcome=Outcome.RETRY, reason=Reason.PROGRESSING, message=str(error))
    except Exception as error:
        log.exception("the %s stage failed", options.stage)
        return TerminationReport(
            outcome=Outcome.RETRY, reason=Reason.INTERNAL_ERROR, message=f"{type(error).__name__}: {error}"
        )
    finally:
        if reporter is not None:
            reporter.close()


def tell_stall(path: Path, words: str | None) -> None:
    """Leave word of a step that hangs, as long as it does.

    Args:
        path: Where the outcome of this process goes.
        words: Where it hangs; None when it does no longer.
    """
    if words is not None:
        report = TerminationReport(outcome=Outcome.RETRY, reason=Reason.TRAINING_STALLED, message=words)
        return write_termination(report, path)
    try:
        path.unlink(missing_ok=True)
    except OSError:
        # The kubelet mounts a single file here.
        path.write_text("")


def leave(code: int) -> NoReturn:
    """End this process at once.

    All is closed, and the kernel frees the rest. Python's own tidying takes seconds once torch is loaded, and the next
    Job waits for them.

    Args:
        code: Exit code.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
