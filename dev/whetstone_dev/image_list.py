"""The list of images that a cluster without a way out needs: `make generate` writes it beside the chart."""

import sys

import yaml
from whetstone_api.generated import page_command
from whetstone_operator.settings import STOCK_ENGINE_IMAGE

from whetstone_dev.places import CHECKOUT

FILE = CHECKOUT / "charts" / "whetstone" / "images.txt"
_CHART = FILE.with_name("Chart.yaml")
_OURS = ("operator", "server", "trainer", "benchmark", "trainer-unsloth")
_HEAD = """\
# Images of this chart and of all pods that the operator makes, but for those that objects name themselves: tasks,
# models as image volumes, and images in a spec. Without a host: from the registry that the images were pushed to.
# whetstone/trainer-unsloth is used only where images.unsloth names it.
# Generated from the code by `make generate`. Do not edit.
"""


def text() -> str:
    """Return the file's text: one image a line."""
    tag = yaml.safe_load(_CHART.read_text())["appVersion"]
    return _HEAD + "".join(
        f"{image}\n" for image in (*(f"whetstone/{name}:{tag}" for name in _OURS), STOCK_ENGINE_IMAGE)
    )


def listed() -> list[str]:
    """Return the images of the file."""
    return [line for line in FILE.read_text().splitlines() if not line.startswith("#")]


main = page_command(text, FILE.relative_to(CHECKOUT))


if __name__ == "__main__":
    sys.exit(main(None))
