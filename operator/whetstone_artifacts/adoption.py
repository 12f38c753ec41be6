"""Adoption: a place that already holds the result of the same recipe is taken, of another one never overwritten."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from whetstone_api.adapter_artifact import LINEAGE_FILE, Lineage, Manifest
from whetstone_api.run_artifact import RESULTS_FILE, RunArtifact
from whetstone_api.vocabulary import Reason

from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import verify_adapter
from whetstone_artifacts.models import recorded_model


def find_adapter(place: Path, recipe_digest: str, *, recipe: Mapping[str, object] | None = None) -> Lineage | None:
    """Return the lineage of the adapter at a place when it was made by the same recipe.

    Args:
        place: The output folder.
        recipe_digest: Digest of the recipe that is asked for.
        recipe: That recipe, so that a refusal can name what differs.

    Returns:
        None for a place that is missing or empty.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED` for anything else at the place; `DIGEST_MISMATCH` or `ADAPTER_INVALID` for a
            damaged artifact of the same recipe.
    """
    if not _holds_something(place):
        return None
    lineage = _read(place, LINEAGE_FILE, Lineage)
    if lineage.merged_adapter is not None:
        raise _occupied(place, lineage, "a merged model")
    if lineage.recipe_digest != recipe_digest:
        differing = "" if recipe is None else f" (differs in: {_differences(lineage.recipe, recipe)})"
        raise _occupied(place, lineage, "the adapter of another recipe", differing)
    verify_adapter(place, None)
    return lineage


def find_merged(place: Path, adapter_digest: str) -> Manifest | None:
    """Return the record of the merged model at a place when the same adapter is merged in.

    Args:
        place: The output folder.
        adapter_digest: Content digest of the adapter that is asked for; it holds for one base only.

    Returns:
        None for a place that is missing or empty.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED` for anything else at the place; `DIGEST_MISMATCH` for a damaged model.
    """
    if not _holds_something(place):
        return None
    lineage = _read(place, LINEAGE_FILE, Lineage)
    if lineage.merged_adapter != adapter_digest:
        raise _occupied(place, lineage, "something else than this adapter's merged model")
    record = recorded_model(place)
    if record is None:
        raise ArtifactError(
            Reason.DIGEST_MISMATCH, f"{place} is not whole; remove the folder, or name another spec.output.merged"
        )
    return record


def find_run(place: Path, recipe_digest: str) -> RunArtifact | None:
    """Return the finished run at a place when it was made by the same recipe.

    Returns:
        None for a place without `results.json`: what an unfinished run left there is continued.

    Raises:
        ArtifactError: `OUTPUT_OCCUPIED` when the place holds the results of another recipe.
    """
    if not (place / RESULTS_FILE).exists():
        return None
    run = _read(place, RESULTS_FILE, RunArtifact)
    if run.recipe_digest != recipe_digest:
        raise ArtifactError(
            Reason.OUTPUT_OCCUPIED,
            f"{place} holds the results of another recipe, made by {run.namespace}/{run.object_name} at"
            f" {run.finished_at}; they are never overwritten: name another spec.output or remove the folder",
        )
    return run


def _occupied(place: Path, lineage: Lineage, what: str, detail: str = "") -> ArtifactError:
    return ArtifactError(
        Reason.OUTPUT_OCCUPIED,
        f"{place} holds {what}, made by {lineage.namespace}/{lineage.object_name}{detail}; it is never overwritten:"
        " name another spec.output or remove the folder",
    )


def _holds_something(place: Path) -> bool:
    return place.is_file() or (place.is_dir() and any(place.iterdir()))


def _read[M: (Lineage, RunArtifact)](place: Path, name: str, model: type[M]) -> M:
    path = place / name
    if not path.is_file():
        raise ArtifactError(
            Reason.OUTPUT_OCCUPIED,
            f"{place} holds files that are not Whetstone's (no {name}); name another spec.output or empty the folder",
        )
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ArtifactError(
            Reason.OUTPUT_OCCUPIED, f"{path} cannot be read ({error.error_count()} errors); remove the folder"
        ) from error


def _differences(held: Mapping[str, object], wanted: Mapping[str, object], prefix: str = "") -> str:
    names: list[str] = []
    for key in sorted({*held, *wanted}):
        old, new = held.get(key), wanted.get(key)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            names.append(_differences(old, new, f"{prefix}{key}."))
        else:
            names.append(f"{prefix}{key}: {old!r} there, {new!r} asked")
    return ", ".join(names) or "the recipe's form"
