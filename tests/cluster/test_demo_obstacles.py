"""What the demo says on a cluster that cannot run it."""

from pathlib import Path

import pytest
from whetstone_dev.demo import plan
from whetstone_dev.demo.__main__ import Demo
from whetstone_dev.demo.kube import Kube
from whetstone_dev.demo.watch import DemoError

pytestmark = pytest.mark.cluster


@pytest.mark.long
def test_image_that_no_node_can_pull_is_told_in_one_line(
    kube: Kube, kubeconfig: Path, images: dict[str, str], namespace: str
) -> None:
    absent = {**images, "demo-seed": f"{images['demo-seed']}-none"}
    demo = Demo(kube, namespace=namespace, images=absent, size=plan.SMALL)
    with pytest.raises(DemoError, match=r"^pod seed-\w+ cannot pull \S+-none: [^\n]*$"):
        demo.prepare(kubeconfig, {})
