"""`whetstone bundle`: a pinned task set that needs no internet."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from whetstone_api.benchmark_suite import ImageRewriting
from whetstone_api.source import FOLDER_URI, PUSH_URI, Scheme, is_packed, scheme_of
from whetstone_api.task_bundle import Bundle, Provenance
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.sources.credentials import (
    KNOWN_KEYS,
    Credentials,
    credentials_of_environment,
    read_credentials,
)
from whetstone_artifacts.tasks.folder import task_folders
from whetstone_artifacts.tasks.unpack import lift, unpack_tasks

from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE

if TYPE_CHECKING:
    from whetstone_artifacts.tasks.build import Builder
    from whetstone_artifacts.tasks.bundle import BundlePlan

GIT = "git+"


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command, which names its function as `command_function`."""
    one = commands.add_parser("bundle", help="make a pinned task set, with its images, that needs no internet")
    one.add_argument(
        "source",
        help="a folder of tasks, a .tar[.gz] or .parquet file, git+URL@COMMIT, name@version of a registry, or a place:"
        " hf://datasets/owner/repo[/path], s3://…, https://…, oci://…@sha256:…",
    )
    one.add_argument("--revision", help="branch, tag or commit of an hf:// source; main if absent")
    one.add_argument("-o", dest="output", type=Path, help="folder to make; may lie in a mounted volume")
    one.add_argument("--push", metavar="URI", help="also push it: oci://registry/repo[:tag] or s3://bucket/key")
    one.add_argument("--secret", type=Path, help="folder with a file for each key that the places ask for")
    one.add_argument("--registry", type=Path, metavar="FILE", help="registry.json for name@version; Harbor's if absent")
    one.add_argument("--path", default="", help="folder in the repository or archive that holds the tasks")
    one.add_argument("--include", action="append", metavar="GLOB", help="only tasks of these names")
    one.add_argument("--exclude", action="append", metavar="GLOB", default=[], help="no tasks of these names")
    one.add_argument("--image-prefix", metavar="PREFIX", help="pull images from this mirror: registry/path")
    one.add_argument("--image", action="append", default=[], metavar="OLD=NEW", help="pull NEW where a task says OLD")
    one.add_argument("--push-images", metavar="REPOSITORY", help="build what comes as a Dockerfile, push it there")
    one.add_argument("--plain-http", action="store_true", help="the registries speak plain HTTP")
    one.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="argument of Dockerfiles")
    one.add_argument("--builder", choices=("buildah", "podman", "docker"), help="the first that is there if absent")
    one.add_argument("--builder-option", action="append", default=[], metavar="OPTION", help="of its build command")
    one.add_argument("--dry-run", action="store_true", help="say what would be made, and make nothing")
    one.set_defaults(command_function=bundle)


def bundle(options: argparse.Namespace) -> int:
    """Make a bundle and print its digest.

    Args:
        options: The command line.

    Returns:
        The exit code: 1 when it cannot be made, 2 when the command cannot be run so.
    """
    problem = _usage(options)
    if problem is not None:
        sys.stderr.write(f"whetstone: {problem}\n")
        return EXIT_USAGE
    try:
        with _gathered(options) as (folders, provenance):
            _make(options, _chosen(folders, options, provenance.source), provenance)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"whetstone: {error.name} is missing; install whetstone[server], for Parquet pyarrow too\n")
        return EXIT_USAGE
    except ArtifactError as error:
        sys.stderr.write(f"whetstone: {error.message}\n")
        return EXIT_INVALID
    return 0


def _usage(options: argparse.Namespace) -> str | None:
    import re

    if options.revision and (not options.source.startswith("hf://") or "@" in options.source):
        return f"{options.source}: --revision is for hf://datasets/owner/repo without @REVISION"
    if options.output is None and not options.dry_run:
        return "give the folder to make with -o, or --dry-run"
    if options.push and (
        not re.match(PUSH_URI, options.push) or scheme_of(options.push) not in (Scheme.OCI, Scheme.S3)
    ):
        return f"{options.push}: give oci://registry/repo[:tag] or s3://bucket/key"
    for pair in (*options.image, *options.build_arg):
        if not all(pair.partition("=")[::2]) and "=" not in pair:
            return f"{pair}: give NAME=VALUE"
    return None


@contextmanager
def _gathered(options: argparse.Namespace) -> Iterator[tuple[list[Path], Provenance]]:
    """Give the task folders, wherever they come from; what was fetched for it is removed again."""
    source: str = options.source
    beside = options.output.absolute().parent if options.output else None
    if beside is not None:
        beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=beside) as name:
        scratch = Path(name)
        if "://" in source and not source.startswith(GIT):
            root, revisions = _from_place(source, options, scratch / "fetched")
            root /= options.path
        elif source.startswith(GIT):
            root, revisions = _from_git(source.removeprefix(GIT), scratch / "repository", options.path)
        elif Path(source).is_dir():
            root, revisions = Path(source) / options.path, []
            source = root.resolve().name
        elif is_packed(source):
            root, revisions = _from_file(Path(source), scratch / "unpacked") / options.path, []
            source = Path(source).name
        elif "@" in source:
            root, revisions = _from_registry(source, options.registry, scratch)
        else:
            raise _unknown(source)
        if not root.is_dir():
            raise _unknown(f"{options.source} {options.path}".strip())
        yield task_folders(root), Provenance(source=source, revisions=revisions)


def _unknown(source: str) -> ArtifactError:
    from whetstone_api.vocabulary import Reason

    return ArtifactError(
        Reason.SOURCE_NOT_FOUND,
        f"{source}: there is no such folder or file; give one, git+URL@COMMIT, name@version, or a place (hf://datasets/…,"
        " s3://…, https://…, oci://…)",
    )


def _from_git(place: str, folder: Path, path: str) -> tuple[Path, list[str]]:
    from whetstone_artifacts.tasks.repositories import check_out

    url, at, revision = place.rpartition("@")
    if not at or "/" in revision:
        url, revision = place, "HEAD"
    _say(f"fetching {url} at {revision}")
    commit = check_out(url, revision, folder, [path] if path else [])
    return folder / path, [f"{url}@{commit}"]


def _from_place(place: str, options: argparse.Namespace, folder: Path) -> tuple[Path, list[str]]:
    from whetstone_artifacts.tasks.sets import fetch_folder, resolve_place

    uri = _pinned(place, options.revision)
    scheme = scheme_of(uri)
    credentials = _credentials(options, scheme, needed=False)
    uri = resolve_place(uri, credentials)
    _say(f"fetching {uri}")
    fetch_folder(uri, credentials, folder)
    return folder, [uri]


def _pinned(place: str, revision: str | None) -> str:
    """Return a place as a source names it: one of a hub with the revision that the command line gives."""
    import re

    uri = place
    if place.startswith("hf://") and "@" not in place:
        scheme, datasets, owner, name, *path = place.replace("://", "/", 1).split("/") + [""] * 3
        uri = f"{scheme}://{datasets}/{owner}/{name}@{revision or 'main'}/{'/'.join(path)}".rstrip("/")
    if not re.match(FOLDER_URI, uri) or scheme_of(uri) is Scheme.PVC:
        raise _unknown(place)
    return uri


def _from_file(file: Path, folder: Path) -> Path:
    folder.mkdir()
    _say(f"unpacking {file}")
    try:
        unpack_tasks(file, folder)
    except OSError as error:
        raise _unknown(str(file)) from error
    return lift(folder)


def _from_registry(name: str, registry: Path | None, scratch: Path) -> tuple[Path, list[str]]:
    from whetstone_artifacts.tasks.registry import gather, look_up

    entries = look_up(name, registry)
    _say(f"fetching the {len(entries)} tasks of {name}")
    folder = scratch / "gathered"
    folder.mkdir()
    return folder, gather(entries, folder, scratch / "repository")


def _chosen(folders: Sequence[Path], options: argparse.Namespace, source: str) -> list[Path]:
    from whetstone_api.vocabulary import Reason

    kept = [
        folder
        for folder in folders
        if (options.include is None or any(fnmatchcase(folder.name, glob) for glob in options.include))
        and not any(fnmatchcase(folder.name, glob) for glob in options.exclude)
    ]
    if not kept:
        raise ArtifactError(
            Reason.TASKS_INVALID, f"{source}: --include and --exclude leave none of {len(folders)} tasks; correct them"
        )
    return kept


def _make(options: argparse.Namespace, folders: Sequence[Path], provenance: Provenance) -> None:
    from whetstone_artifacts.sources.push import open_destination
    from whetstone_artifacts.tasks.bundle import describe, packed, plan_bundle, write_bundle

    mapping = dict(pair.split("=", 1) for pair in options.image)
    rewriting = ImageRewriting(prefix=options.image_prefix, map=mapping) if mapping or options.image_prefix else None
    plan = plan_bundle(folders, rewriting, provenance)
    builder = _builder(options, plan)
    if options.dry_run:
        named = {(one.task, one.folder): builder.reference(one.task, one.context) for one in plan.builds if builder}
        _tell(describe(plan, named))
        print(f"would make {plan.digest}")
        return
    made = describe(plan, _build(plan, builder, options))
    found = write_bundle(plan, made, options.output)
    _tell(made)
    print(f"{'found' if found else 'made'} {options.output} {made.digest}")
    if options.push:
        with packed(options.output) as parcel:
            _say(f"pushing to {options.push}")
            pushed = open_destination(options.push, _credentials(options, scheme_of(options.push))).push(parcel)
        print(f"{'found' if pushed.found else 'pushed'} {pushed.uri} {made.digest}")


def _builder(options: argparse.Namespace, plan: "BundlePlan") -> "Builder | None":
    from whetstone_artifacts.tasks.build import Builder, find_builder

    if not options.push_images or not plan.builds:
        return None
    return Builder(
        program=find_builder(options.builder),
        repository=options.push_images.rstrip("/"),
        arguments=dict(pair.split("=", 1) for pair in options.build_arg),
        options=options.builder_option,
        plain_http=options.plain_http,
    )


def _build(plan: "BundlePlan", builder: "Builder | None", options: argparse.Namespace) -> Mapping[tuple[str, str], str]:
    """Build and push what is not in the registry yet, so that a killed command goes on where it was."""
    from whetstone_artifacts.tasks.build import is_pushed

    built: dict[tuple[str, str], str] = {}
    if builder is None:
        return built
    credentials = _credentials(options, Scheme.OCI)
    for number, one in enumerate(plan.builds, start=1):
        reference = builder.reference(one.task, one.context)
        there = is_pushed(reference, credentials)
        _say(f"image {number} of {len(plan.builds)}: {reference} {'is there' if there else 'is being built'}")
        if not there:
            builder.build(reference, one.context)
            builder.push(reference)
        built[(one.task, one.folder)] = reference
    return built


def _credentials(options: argparse.Namespace, scheme: Scheme, *, needed: bool = True) -> Credentials:
    """Return what a place asks for; a source may need nothing of a folder that has the keys of another place."""
    secret: Path | None = options.secret
    if secret is not None and not needed and not _holds_keys(secret, scheme):
        secret = None
    given = read_credentials(scheme, secret) if secret else credentials_of_environment(scheme, os.environ)
    if not options.plain_http or scheme is not Scheme.OCI:
        return given
    return Credentials(
        values={**given.values, "plainHTTP": "true"}, ca_file=given.ca_file, docker_config=given.docker_config
    )


def _holds_keys(secret: Path, scheme: Scheme) -> bool:
    return secret.is_dir() and bool({path.name for path in secret.iterdir()} & set(KNOWN_KEYS.get(scheme, ())))


def _tell(made: Bundle) -> None:
    """Print every image once, then what cannot run as it is."""
    width = min(shutil.get_terminal_size().columns, 120)
    references: dict[str, str] = {}
    for one in made.images:
        text = f"{one.origin.value.lower()} {one.reference or '(not built)'}"
        references.setdefault(text, f" for {one.image}" if one.image and one.image != one.reference else "")
    for text, why in sorted(references.items()):
        print(f"image {text}{why}")
    for refused in made.refused:
        print(f"refused {refused.task}: {refused.reason}: {refused.message}"[: 4 * width])
    print(f"{len(made.tasks)} tasks, {len(references)} images, {len(made.refused)} refused")


def _say(text: str) -> None:
    sys.stderr.write(f"whetstone: {text}\n")
