"""Find and remove what is mounted under a folder."""

from pathlib import Path

from whetstone_dev.commands import run, succeeds


def under(folder: Path) -> list[Path]:
    """Mount points at or below the folder, deepest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # The kernel writes a space as \040; none of our paths has one.
        point = Path(line.split()[4])
        if point == folder or folder in point.parents:
            found.append(point)
    return sorted(found, key=lambda path: len(path.parts), reverse=True)


def remove(folder: Path) -> None:
    """Unmount everything under the folder; what is busy is detached at once and freed when its last user ends."""
    while points := under(folder):
        for point in points:
            if not succeeds(["umount", point]):
                run(["umount", "--lazy", point])
