"""Write or check the generated files of `examples/tooluse/company`."""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whetstone_agent.tooluse.convert import convert, render_instances
from whetstone_agent.tooluse.world import World
from whetstone_api.generated import write_or_check

from whetstone_dev.company.papers import collections
from whetstone_dev.company.questions import questions
from whetstone_dev.company.records import Company, Split, draw
from whetstone_dev.places import CHECKOUT

PLACE = Path("examples") / "tooluse" / "company"
FOLDER = CHECKOUT / PLACE


def render() -> dict[str, str]:
    """Return the text of every generated file, by its place below the folder."""
    companies = [draw(split) for split in Split]
    files = {f"collections/{name}.jsonl": _lines(rows) for name, rows in collections(companies).items()}
    files["records.json"] = json.dumps(_records(companies), indent=1, ensure_ascii=False) + "\n"
    with tempfile.TemporaryDirectory() as place:
        world = _world(Path(place), files)
        for company in companies:
            raw = questions(company)
            # The name comes first, for who reads the file.
            rows = [{"id": one.id, **one.model_dump(by_alias=True, mode="json", exclude_defaults=True)} for one in raw]
            name = f"{company.split}.json"
            files[f"questions/{name}"] = (
                "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"
            )
            files[name] = render_instances(convert(raw, world, file=name))
    return files


def _world(folder: Path, files: Mapping[str, str]) -> World:
    (folder / "collections").mkdir()
    for name, text in files.items():
        if name.startswith("collections/"):
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "openapi.yaml").write_text((FOLDER / "openapi.yaml").read_text())
    return World.open(folder, folder / "indexes")


def _records(companies: Sequence[Company]) -> dict[str, Any]:
    """Return what the API knows: stock and price of a product, and not what its data sheet says."""
    stock = [
        {"code": one.code, "units": one.units, "price": one.price} for company in companies for one in company.products
    ]
    return {
        "employees": [asdict(one) for company in companies for one in company.employees],
        "teams": [asdict(one) for company in companies for one in company.teams],
        "stock": stock,
        "tickets": [asdict(one) for company in companies for one in company.tickets],
    }


def _lines(rows: Sequence[Mapping[str, str]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _files(root: Path) -> dict[Path, str]:
    return {root / PLACE / name: text for name, text in render().items()}


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or tell whether they are current.

    Args:
        arguments: Command line; that of the process when absent.
    """
    return write_or_check(_files, about="Generate the invented company.", arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
