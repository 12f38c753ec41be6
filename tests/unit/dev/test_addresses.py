"""The address ranges of a cluster and how a free block is found."""

import itertools
import threading
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from support.waiting import eventually
from whetstone_dev import network
from whetstone_dev.commands import DevError
from whetstone_dev.network import Ranges, free_block, link_name

BLOCK = IPv4Network("10.200.0.0/16")


def test_ranges_lie_in_the_block_and_overlap_nowhere() -> None:
    ranges = Ranges(str(BLOCK))
    links = IPv4Network(f"{ranges.host()}/24", strict=False)
    neighbours = IPv4Network(f"{ranges.neighbour(0)}/30", strict=False)
    assert [str(address) for address in neighbours.hosts()] == [ranges.neighbour(0), ranges.neighbour(1)]
    assert not any(neighbours.overlaps(IPv4Network(ranges.link(index))) for index in (0, 1))
    parts = [links, *map(IPv4Network, (ranges.services, ranges.pods(0), ranges.pods(1)))]
    assert all(part.subnet_of(BLOCK) for part in parts)
    assert not [pair for pair in itertools.combinations(parts, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.parametrize("index", [0, 1])
def test_both_ends_of_a_link_share_a_network_of_two(index: int) -> None:
    ranges = Ranges(str(BLOCK))
    hosts = IPv4Network(ranges.link(index)).hosts()
    assert [str(address) for address in hosts] == [ranges.host(index), ranges.node(index)]


def test_api_server_has_the_first_service_address() -> None:
    ranges = Ranges(str(BLOCK))
    assert IPv4Address(ranges.api_service) == next(IPv4Network(ranges.services).hosts())


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([], "10.200.0.0/16"),
        (["192.168.0.0/16"], "10.200.0.0/16"),
        (["10.200.64.0/18"], "10.201.0.0/16"),
        (["10.200.0.2/32", "10.201.0.0/30"], "10.202.0.0/16"),
        (["10.0.0.0/8"], "172.24.0.0/16"),
    ],
)
def test_first_block_that_overlaps_nothing_is_taken(used: list[str], expected: str) -> None:
    assert free_block(map(IPv4Network, used)) == expected


def test_no_free_block_is_an_error_that_names_the_candidates() -> None:
    with pytest.raises(DevError, match=r"10\.200 to 10\.249 and 172\.24 to 172\.31"):
        free_block([IPv4Network("0.0.0.0/0")])


def test_two_clusters_that_choose_at_once_take_different_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "addresses"
    monkeypatch.setattr(network, "_LOCK", lock)
    routes: list[IPv4Network] = []

    def choose() -> None:
        with network.choosing():
            routes.append(IPv4Network(free_block(routes)))

    def waits() -> bool:
        inode = f":{lock.stat().st_ino} "
        return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())

    other = threading.Thread(target=choose)
    with network.choosing():
        block = free_block(routes)
        other.start()
        eventually(waits, what="the other cluster waiting")
        routes.append(IPv4Network(block))
    other.join()
    assert len(set(routes)) == 2


def test_link_names_fit_the_kernel_and_differ() -> None:
    names = [
        link_name(cluster, index) for cluster in ("whetstone", "whetstone-test-with-a-long-name") for index in (0, 1)
    ]
    assert max(map(len, names)) <= 15
    assert len(set(names)) == len(names)
