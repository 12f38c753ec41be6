"""What the instances of an environment are about: collections of documents, and an API.

    collections/<name>.jsonl    documents
    openapi.yaml                the API (or openapi.json)

Either may be missing. Files of instances lie beside them.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jsonschema import Draft202012Validator

from whetstone_agent.tooluse.api_tools import first_problem
from whetstone_agent.tooluse.errors import EnvironmentDataError
from whetstone_agent.tooluse.instances import Instance, Step, read_instances
from whetstone_agent.tooluse.openapi import Api, Operation, read_api
from whetstone_agent.tooluse.retrieval import Collection, Document
from whetstone_agent.tooluse.rungs import rung_problems

_DOCUMENTS = ("openapi.yaml", "openapi.yml", "openapi.json")


class World:
    """Collections and operations.

    Args:
        collections: By name.
        api: The API, if there is one.
        digest: Digest of the files.
    """

    def __init__(self, collections: Mapping[str, Collection], api: Api | None, *, digest: str = "") -> None:
        self.digest = digest
        self.collections = dict(collections)
        self.api = api
        self.operations: Mapping[str, Operation] = api.operations if api else {}

    @classmethod
    def open(cls, folder: Path, cache: Path) -> "World":
        """Read a world.

        Args:
            folder: Where it lies.
            cache: Folder for indexes; it is made where it is missing.

        Raises:
            EnvironmentDataError: Something in it cannot be used.
        """
        cache.mkdir(parents=True, exist_ok=True)
        files = sorted((folder / "collections").glob("*.jsonl"))
        document = next((folder / name for name in _DOCUMENTS if (folder / name).is_file()), None)
        if not files and document is None:
            raise EnvironmentDataError([f"{folder.name}: has neither collections/*.jsonl nor openapi.yaml: add one"])
        collections = {path.stem: Collection.open(path, cache) for path in files}
        read = hashlib.sha256()
        for path in (*files, *([document] if document else [])):
            read.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return cls(collections, read_api(document) if document else None, digest=f"sha256:{read.hexdigest()}")

    def search(self, collection: str, query: str, top_k: int) -> list[Document]:
        """Return the documents of a collection that fit a query best, best first.

        Args:
            collection: Its name.
            query: Words in any form.
            top_k: Documents at most.
        """
        return self.collections[collection].search(query, top_k)

    def read(self, file: Path) -> list[Instance]:
        """Read instances, and check that the world has all that they name.

        Raises:
            EnvironmentDataError: Some are wrong; all of them are named.
        """
        instances = read_instances(file)
        self.check(instances, file.name)
        return instances

    def check(self, instances: Sequence[Instance], file: str) -> None:
        """Check that the world has all that instances name.

        Args:
            instances: The instances.
            file: What messages call their file.

        Raises:
            EnvironmentDataError: Some name what is not there; all of them are named.
        """
        problems = [f"{file}: instance {one.id}: {problem}" for one in instances for problem in self._problems(one)]
        if problems:
            raise EnvironmentDataError(problems)

    def _problems(self, instance: Instance) -> Iterator[str]:
        known = self.collections.keys() | self.operations.keys()
        fix = f"use one of {', '.join(sorted(known))}"
        yield from (
            f"tools: no collection or operation {name!r}: {fix}" for name in instance.tools or () if name not in known
        )
        for name in instance.forbidden.collections:
            if name not in self.collections:
                yield f"forbidden.collections: no collection {name!r}: use one of {', '.join(sorted(self.collections))}"
        for name in instance.forbidden.operations:
            if name not in self.operations:
                yield f"forbidden.operations: no operation {name!r}: use one of {', '.join(sorted(self.operations))}"
        if instance.forbidden != type(instance.forbidden)() and not instance.tool_usage.strip():
            yield "toolUsage: is empty, and forbidden is not: tell the agent what is forbidden"
        for turn, asked in enumerate(instance.turns):
            where = f"followUps.{turn - 1}.trajectory" if turn else "trajectory"
            for number, step in enumerate(asked.trajectory):
                yield from (f"{where}.{number}.{problem}" for problem in self._step_problems(step))
        yield from rung_problems(instance)

    def _step_problems(self, step: Step) -> Iterator[str]:
        if step.searches:
            collection = self.collections.get(step.source)
            if collection is None:
                known = ", ".join(sorted(self.collections)) or "none"
                yield f"args.collection: no collection {step.source!r}: there is {known}"
                return
            if not str(step.args.get("query", "")).strip():
                yield "args.query: is missing: add it"
            for name in step.documents:
                if name not in collection.ids:
                    yield f"documents: no document {name!r} in {step.source}: correct the id"
            return
        operation = self.operations.get(step.tool)
        if operation is None:
            known = ", ".join(["retrieve_documents", *sorted(self.operations)])
            yield f"tool: no tool {step.tool!r}: use one of {known}"
            return
        said = first_problem(Draft202012Validator(operation.schema), step.args)
        if said is not None:
            yield f"args: {said}: correct them"
        if step.field is not None and step.field not in operation.fields:
            yield f"field: {step.tool} answers no field {step.field!r}: use one of {', '.join(operation.fields)}"
