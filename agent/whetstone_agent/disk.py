"""Whether an error says that a volume is full, however deep it is wrapped."""

from whetstone_artifacts.errors import FULL_DISK


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, one of its group, or one that caused it, is that of a full volume."""
    if error is None:
        return False
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return True
    if isinstance(error, BaseExceptionGroup) and any(map(is_disk_full, error.exceptions)):
        return True
    return is_disk_full(error.__cause__ or error.__context__)
