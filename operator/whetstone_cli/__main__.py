"""The command `whetstone`."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from whetstone_api.source import PUSH_URI, scheme_of
from whetstone_artifacts.errors import ArtifactError
from whetstone_artifacts.folders import adapter_digest
from whetstone_artifacts.models import is_model, model_digest
from whetstone_artifacts.sources.credentials import credentials_of_environment, read_credentials
from whetstone_artifacts.sources.parcel import read_parcel
from whetstone_artifacts.sources.push import open_destination
from whetstone_artifacts.training_choice import memory_bytes

from whetstone_cli import bundle, data, must_gather, power, runs
from whetstone_cli.exits import EXIT_INVALID, EXIT_USAGE


def digest(folder: Path) -> int:
    """Print the content digest of an adapter's or model's folder, as `source.digest` wants it.

    Args:
        folder: Folder with `adapter_config.json` and `adapter_model.safetensors`, or a base model's with
            `config.json` and `*.safetensors`.

    Returns:
        The exit code: 1 when the folder is neither.
    """
    try:
        print(model_digest(folder) if is_model(folder) else adapter_digest(folder))
    except ArtifactError as error:
        sys.stderr.write(f"whetstone: {error.message}\n")
        return EXIT_INVALID
    return 0


def push(folder: Path, uri: str, secret: Path | None) -> int:
    """Copy an adapter or a model to a place, and print where it lies and its digest.

    Args:
        folder: The adapter's or model's folder.
        uri: `s3://bucket/key`, `oci://registry/repo[:tag]` or `hf://owner/repo`.
        secret: Folder with a file for each key of the Secret that the place asks for; None takes the keys from the
            environment and logins from Docker's configuration.

    Returns:
        The exit code: 1 when it cannot be pushed, 2 when the command cannot be run so.
    """
    if not re.match(PUSH_URI, uri) or uri.startswith("pvc://"):
        sys.stderr.write(f"whetstone: {uri}: give s3://bucket/key, oci://registry/repo[:tag] or hf://owner/repo\n")
        return EXIT_USAGE
    scheme = scheme_of(uri)
    try:
        keys = read_credentials(scheme, secret) if secret else credentials_of_environment(scheme, os.environ)
        pushed = open_destination(uri, keys).push(read_parcel(folder))
    except ModuleNotFoundError as error:
        sys.stderr.write(f"whetstone: {error.name} is missing; install whetstone[server]\n")
        return EXIT_USAGE
    except ArtifactError as error:
        sys.stderr.write(f"whetstone: {error.message}\n")
        return EXIT_INVALID
    print(f"{'found' if pushed.found else 'pushed'} {pushed.uri} {pushed.digest}")
    return 0


def validate(files: Sequence[Path]) -> int:
    """Check manifests as the API server would and print what is wrong with them.

    Args:
        files: YAML files; `-` is the standard input.

    Returns:
        The exit code: 1 when an object is not valid, 2 when a file cannot be read.
    """
    try:
        from whetstone_cli.manifests import ManifestError, check_text
    except ModuleNotFoundError as error:
        sys.stderr.write(f"whetstone: {error.name} is missing; install whetstone[cli]\n")
        return EXIT_USAGE
    code = 0
    for file in files:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
            report = check_text(text)
        except (OSError, UnicodeDecodeError, ManifestError) as error:
            sys.stderr.write(f"whetstone: {file}: {error}\n")
            return EXIT_USAGE
        for problem in report.problems:
            print(f"{file}: {problem}")
            code = EXIT_INVALID
        print(f"{file}: {report.valid} of {report.ours} objects valid, {report.skipped} of other kinds skipped")
    return code


def estimate(options: argparse.Namespace) -> int:
    """Print how much memory of an accelerator the objects of a manifest take.

    Args:
        options: `file`, `model_config`, `longest`, `memory` and `output` of the command line.

    Returns:
        The exit code: 1 when an object is not valid or nothing fits, 2 when a file cannot be read.
    """
    try:
        from whetstone_cli.estimate import EstimateError, as_json, as_text, estimate_object, model_facts
        from whetstone_cli.manifests import ManifestError, read_objects
    except ModuleNotFoundError as error:
        sys.stderr.write(f"whetstone: {error.name} is missing; install whetstone[cli]\n")
        return EXIT_USAGE
    try:
        text = sys.stdin.read() if str(options.file) == "-" else options.file.read_text()
        objects, problems = read_objects(text)
    except (OSError, UnicodeDecodeError, ManifestError) as error:
        sys.stderr.write(f"whetstone: {options.file}: {error}\n")
        return EXIT_USAGE
    for problem in problems:
        print(f"{options.file}: {problem}")
    if problems:
        return EXIT_INVALID
    try:
        facts = model_facts(options.model_config)
        found = [
            one
            for document in objects
            for one in estimate_object(document, facts, longest=options.longest, free=options.memory)
        ]
    except EstimateError as error:
        sys.stderr.write(f"whetstone: {error}\n")
        return EXIT_INVALID
    print(as_json(found) if options.output == "json" else as_text(found))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: Command line; that of the process when absent.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="whetstone", description="Tools for users of Whetstone.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("digest", help="print the content digest of an adapter's or model's folder")
    one.add_argument("folder", type=Path)
    to = commands.add_parser("push", help="copy an adapter or a model to a bucket, a registry or a hub")
    to.add_argument("folder", type=Path)
    to.add_argument("uri", help="s3://bucket/key, oci://registry/repo[:tag] or hf://owner/repo")
    to.add_argument("--secret", type=Path, help="folder with a file for each key that the place asks for")
    many = commands.add_parser("validate", help="check manifests before they are applied")
    many.add_argument("files", type=Path, nargs="+", metavar="file")
    memory = commands.add_parser("estimate", help="say how much memory of an accelerator a manifest's objects take")
    memory.add_argument("-f", dest="file", type=Path, required=True, metavar="manifest", help="`-` is standard input")
    memory.add_argument("--model-config", type=Path, required=True, help="the base model's folder or its config.json")
    memory.add_argument("--longest", type=int, help="tokens of the longest row or request")
    memory.add_argument("--memory", type=memory_bytes, help="memory of one accelerator, as in 80Gi")
    memory.add_argument("--output", choices=("text", "json"), default="text")
    runs.add_commands(commands)
    must_gather.add_command(commands)
    bundle.add_commands(commands)
    power.add_command(commands)
    data.add_commands(commands)
    options = parser.parse_args(arguments)
    if "command_function" in options:
        return int(options.command_function(options))
    if options.command == "push":
        return push(options.folder, options.uri, options.secret)
    if options.command == "estimate":
        return estimate(options)
    return digest(options.folder) if options.command == "digest" else validate(options.files)


if __name__ == "__main__":
    sys.exit(main())
