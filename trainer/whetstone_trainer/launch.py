"""The launcher: one in each training pod, it starts the pod's processes by torchrun's agent and tells how they ended.

Nothing is started again here: Kubernetes owns the retries. When a process dies the agent ends the others of its pod;
those of other pods lose their connection and end too, and the Job starts all pods anew.
"""

import logging
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from whetstone_api.jobs import STOP_SECONDS, TrainingConfig
from whetstone_api.reports import Outcome, TerminationReport
from whetstone_api.training_distributed import NODE_VARIABLE, RENDEZVOUS_PORT, RENDEZVOUS_VARIABLE, World
from whetstone_api.vocabulary import Reason

from whetstone_trainer.cpus import available_cpus
from whetstone_trainer.distributed import PATIENCE, WORKER_VARIABLE
from whetstone_trainer.errors import UserError

log = logging.getLogger(__name__)

END_SECONDS = 10
"""Seconds between the last moment at which the agent kills processes that do not stop and the kubelet's own kill."""


def node_index(world: World, environment: Mapping[str, str] = os.environ) -> int:
    """Return the index of this pod among those of the training.

    Raises:
        UserError: `WORLD_MISMATCH` when this is not a pod of an Indexed Job though the spec asks for several.
    """
    if world.nodes == 1:
        return 0
    index = environment.get(NODE_VARIABLE, "")
    if not index.isdigit() or int(index) >= world.nodes or not environment.get(RENDEZVOUS_VARIABLE):
        raise UserError(
            Reason.WORLD_MISMATCH,
            f"spec.distributed.nodes is {world.nodes}, and this pod has the index {index or 'none'} and meets the"
            f" others at {environment.get(RENDEZVOUS_VARIABLE) or 'no address'}: use operator and trainer image of one"
            " release",
        )
    return int(index)


def launch(config: TrainingConfig, arguments: Sequence[str]) -> TerminationReport:
    """Run the processes of this pod to their end and return how they ended, as one report.

    Args:
        config: The job's configuration.
        arguments: Arguments of `python -m whetstone_trainer` for each process.

    Raises:
        UserError: `WORLD_MISMATCH`.
    """
    node = node_index(config.world)
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    with tempfile.TemporaryDirectory(prefix="whetstone-") as folder:
        os.environ[WORKER_VARIABLE] = folder
        died: tuple[int, str] | None = None
        try:
            _run_agent(config.world, node, arguments)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            died = (rank, f"rank {rank} died with exit code {failure.exitcode}")
        except SignalException as error:
            log.warning("stopped by signal %s", error.sigval)
        reports = _read_reports(Path(folder))
    first = node * config.world.processes_per_node
    return sum_up(reports, mine=range(first, first + config.world.processes_per_node), died=died)


def sum_up(reports: Mapping[int, TerminationReport], *, mine: range, died: tuple[int, str] | None) -> TerminationReport:
    """Return one report for a pod.

    Wrong input that any process has found ends the training. What rank 0 has published is published, whatever becomes
    of the others. All else is tried again.

    Args:
        reports: What the pod's processes left, by rank.
        mine: The ranks of this pod.
        died: The rank that ended badly first, and how.
    """
    for report in reports.values():
        if report.outcome is Outcome.FAILED:
            return report
    first = reports.get(0)
    if first is not None and first.outcome is Outcome.SUCCEEDED:
        return first
    if died is not None and died[0] not in reports:
        return TerminationReport(outcome=Outcome.RETRY, reason=Reason.POD_FAILED, message=died[1])
    if died is not None:
        return reports[died[0]]
    for rank in mine:
        if rank not in reports:
            return TerminationReport(
                outcome=Outcome.RETRY, reason=Reason.POD_FAILED, message=f"rank {rank} was stopped before its end"
            )
    return next((report for report in reports.values() if report.outcome is Outcome.RETRY), reports[mine.start])


def _run_agent(world: World, node: int, arguments: Sequence[str]) -> None:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Torchrun sets one thread a process, which leaves CPUs idle.
    os.environ["OMP_NUM_THREADS"] = str(max(1, available_cpus() // world.processes_per_node))
    # Its 30 seconds are too short for a long step and a checkpoint.
    os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(STOP_SECONDS - END_SECONDS)
    if world.nodes == 1:
        # As `torchrun --standalone`: the agent chooses a free port.
        meeting = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "local_addr": "localhost"}
        options: dict[str, object] = {"timeout": int(PATIENCE.total_seconds())}
    else:
        endpoint = f"{os.environ[RENDEZVOUS_VARIABLE]}:{RENDEZVOUS_PORT}"
        meeting = {"rdzv_backend": "static", "rdzv_endpoint": endpoint}
        options = {"rank": node, "timeout": int(PATIENCE.total_seconds())}
    launch_config = LaunchConfig(
        min_nodes=world.nodes,
        max_nodes=world.nodes,
        nproc_per_node=world.processes_per_node,
        run_id="whetstone",
        max_restarts=0,
        monitor_interval=0.2,
        rdzv_configs=options,
        **meeting,
    )
    elastic_launch(launch_config, sys.executable)("-m", "whetstone_trainer", *arguments)


def _read_reports(folder: Path) -> dict[int, TerminationReport]:
    return {
        int(path.name): TerminationReport.model_validate_json(path.read_bytes())
        for path in sorted(folder.iterdir(), key=lambda path: int(path.name))
    }
