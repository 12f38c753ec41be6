"""Format of a bundle: a pinned task set that needs no internet.

bundle.json   `Bundle`
tasks/<name>  the tasks, byte for byte as their author has them

In a registry or bucket it is `bundle.json` and `tasks.tar`, which holds the folder `tasks`.
"""

from enum import StrEnum

from pydantic import Field

from whetstone_api.benchmark_suite import RefusedTask
from whetstone_api.wire import WireModel

BUNDLE_FILE = "bundle.json"
TASKS_TAR = "tasks.tar"
TASKS_FOLDER = "tasks"


class ImageOrigin(StrEnum):
    """Why an image has the name that a bundle gives."""

    NAMED = "Named"
    """The task names it so."""
    PREFIX = "Prefix"
    """A prefix was put before the task's name for it."""
    MAP = "Map"
    """A map replaced the task's image."""
    BUILT = "Built"
    """It was built from the task's Dockerfile."""


class BundleImage(WireModel):
    """The image of one container of one task."""

    task: str
    folder: str
    """Folder in the task that the container belongs to, as in `environment`."""
    image: str | None = None
    """As `task.toml` names it; absent for one that comes as a Dockerfile."""
    reference: str | None = None
    """Where it is pulled from; absent for one that was not built."""
    origin: ImageOrigin


class Provenance(WireModel):
    """Where a bundle's tasks come from."""

    source: str
    """As it was asked for: `terminal-bench@2.0`, a repository, a folder's or a file's name."""
    revisions: list[str] = Field(default_factory=list)
    """Repositories with the commits that were read, `https://…@<commit>`."""


class Bundle(WireModel):
    """A pinned task set."""

    format_version: int = 1
    digest: str
    """Digest of the task set: names and contents of all tasks, nothing else."""
    tasks: dict[str, str]
    """Content digest of each task by name."""
    images: list[BundleImage]
    refused: list[RefusedTask] = Field(default_factory=list)
    """Tasks that cannot run in our sandboxes as they are."""
    provenance: Provenance
