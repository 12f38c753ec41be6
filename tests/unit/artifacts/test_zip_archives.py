"""Zip archives of strangers: what they hold arrives, and nothing lands outside or grows without bound."""

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from whetstone_artifacts import zip_archives
from whetstone_artifacts.archives import Allowance, ArchiveError
from whetstone_artifacts.zip_archives import unpack_zip

LARGE = 1 << 20
type Entry = tuple[zipfile.ZipInfo, bytes]


def entry(name: str, content: bytes = b"", *, mode: int = stat.S_IFREG | 0o644, method: int = 8) -> Entry:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.compress_type = method
    return info, content


def link(name: str, target: str) -> Entry:
    return entry(name, target.encode(), mode=stat.S_IFLNK | 0o777)


def packed(*entries: Entry) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content)
    return stream.getvalue()


def patched(content: bytes, field: int, kind: str, value: int) -> bytes:
    """Return an archive whose last entry says something else in the list at the end.

    Args:
        content: The archive.
        field: Where the field is in the entry of that list.
        kind: Its kind, for `struct`.
        value: What it says.
    """
    data = bytearray(content)
    struct.pack_into(kind, data, content.rindex(b"PK\x01\x02") + field, value)
    return bytes(data)


FLAGS, SIZE, OFFSET = (8, "<H"), (24, "<L"), (42, "<L")
TWO = packed(entry("a", bytes(200)), entry("b", bytes(200)))


def unpacked(content: bytes, folder: Path, allowance: Allowance | None = None) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    unpack_zip(io.BytesIO(content), folder, allowance or Allowance())
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_folders_and_links_arrive_and_programs_stay_programs(tmp_path: Path) -> None:
    content = packed(
        entry("t/", mode=stat.S_IFDIR | 0o755),
        entry("./t/a.sh", b"echo", mode=stat.S_IFREG | 0o750),
        entry("t/b", b"two", mode=0o600, method=zipfile.ZIP_STORED),
        link("t/c", "b"),
    )
    assert unpacked(content, tmp_path / "f") == {"t/a.sh": b"echo", "t/b": b"two", "t/c": b"two"}
    assert [(tmp_path / "f/t" / name).stat().st_mode & 0o777 for name in ("a.sh", "b")] == [0o755, 0o644]
    assert (tmp_path / "f/t/c").readlink() == Path("b")


def test_an_archive_with_a_comment_and_something_before_it_arrives(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.comment = b"made by somebody"
        archive.writestr("a", b"one")
    assert unpacked(b"#!/bin/sh\n" + stream.getvalue(), tmp_path / "f") == {"a": b"one"}


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../out", b"x")],
        [entry("/out", b"x")],
        [entry("a/../../out", b"x")],
        [entry("..\\out", b"x")],
        [entry("../d/", mode=stat.S_IFDIR | 0o755)],
        [link("a", "../out")],
        [link("a", "/etc/passwd")],
        [link("a", "."), entry("b", b"x")],
        [entry("d/x", b"x"), link("b", "d"), link("c", "b")],
        [link("d", "."), entry("d/out", b"x")],
        [entry("real/x", b"1"), link("d", "real"), entry("d/x", b"2")],
        [link("a", "n" * 5000)],
        [link("a", "")],
        [entry("pipe", mode=stat.S_IFIFO | 0o644)],
        [entry("disk", mode=stat.S_IFBLK | 0o644)],
        [entry("a", b"x"), entry("a/b", b"x")],
        [entry("n" * 300, b"x")],
        [entry("a", b"x", method=zipfile.ZIP_BZIP2)],
        [entry("a", b"x", method=zipfile.ZIP_LZMA)],
    ],
)
def test_what_leads_out_or_is_no_plain_file_is_refused(tmp_path: Path, entries: list[Entry]) -> None:
    with pytest.raises(ArchiveError):
        unpacked(packed(*entries), tmp_path / "f")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


def test_a_name_is_not_cut_off_where_the_library_would(tmp_path: Path) -> None:
    content = packed(entry("a", b"x"), entry("bXout", b"y")).replace(b"bXout", b"b\0out")
    with pytest.raises(ArchiveError, match=r"'b\\x00out' leads out"):
        unpacked(content, tmp_path / "f")


def test_what_is_encrypted_is_refused_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="b is encrypted; pack the folder without a password"):
        unpacked(patched(TWO, *FLAGS, 1), tmp_path / "f")


@pytest.mark.parametrize("allowance", [Allowance(size=LARGE - 1), Allowance(files=1)], ids=["bytes", "entries"])
def test_an_archive_that_grows_too_large_is_refused_before_it_is_written(tmp_path: Path, allowance: Allowance) -> None:
    content = packed(entry("b", b""), entry("a", bytes(LARGE)))
    assert len(content) < LARGE // 100
    with pytest.raises(ArchiveError, match="unpacks to more than"):
        unpacked(content, tmp_path / "f", allowance)
    assert not (tmp_path / "f/a").exists()


@pytest.mark.parametrize(
    "content",
    [patched(TWO, *SIZE, 10), patched(TWO, *OFFSET, 0)],
    ids=["says less than it holds", "shares the other's bytes"],
)
def test_an_archive_whose_list_lies_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArchiveError, match="no zip archive that can be unpacked"):
        unpacked(content, tmp_path / "f", Allowance(size=1000))
    written = [path.stat().st_size for path in (tmp_path / "f").iterdir()]
    assert sum(written) <= 400


def test_a_list_of_entries_without_bound_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archives, "_DIRECTORY_BYTES", 1 << 17)
    many = packed(*(entry(f"{number:0100d}") for number in range(1000)))
    with pytest.raises(ArchiveError, match="a header in it claims"):
        unpacked(many, tmp_path / "f")
    assert list((tmp_path / "f").iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"no archive", b"", TWO[:-30], TWO[10:], b"PK\x05\x06" + b"\xff" * 18],
    ids=["text", "nothing", "cut short", "cut at its start", "the list's end alone"],
)
def test_what_is_no_whole_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArchiveError):
        unpacked(content, tmp_path / "f")
