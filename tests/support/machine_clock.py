"""The clock of one process alone, which a test sets while the process runs. Its steady clock goes on as it should."""

from pathlib import Path

from whetstone_dev import packages

_LIBRARY = "usr/lib/*/faketime/libfaketime.so.1"


class MachineClock:
    """What a process takes for its machine's clock: the real one, some hours ahead.

    It is never behind: the certificates of a control plane that a test has started just now would not be valid yet.

    Args:
        file: Where the process looks how far it is ahead; made by this.
        hours: How far it is at first.
    """

    def __init__(self, file: Path, *, hours: int) -> None:
        self._file = file
        [self._library] = packages.unpack("libfaketime").glob(_LIBRARY)
        self.set(hours=hours)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the process."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, *, hours: int) -> None:
        """Let the clock be so many hours ahead of the real one from now on."""
        other = self._file.with_suffix(".new")
        other.write_text(f"+{hours * 3600}")
        other.replace(self._file)
