"""Loads the programs of examples, which are files and no packages."""

import importlib.util
from types import ModuleType

from whetstone_dev.places import CHECKOUT


def program(path: str) -> ModuleType:
    place = CHECKOUT / "examples" / path
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
