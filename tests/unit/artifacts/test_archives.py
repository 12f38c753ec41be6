"""Tar archives of strangers: what they hold arrives, and nothing lands outside or grows without bound."""

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from whetstone_artifacts.archives import Allowance, ArchiveError, unpack_tar

LARGE = 1 << 20


def member(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def unpacked(content: bytes, folder: Path, allowance: Allowance | None = None) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    unpack_tar(io.BytesIO(content), folder, allowance or Allowance())
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_files_arrive_with_their_content_whatever_packs_them(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    content = packed(member("./t/a.sh", b"echo", mode=0o750), member("t/b", b"two", mode=0o600), link("t/c", "b"))
    found = unpacked(compress(content), tmp_path / "f")
    assert found == {"t/a.sh": b"echo", "t/b": b"two", "t/c": b"two"}
    assert [(tmp_path / "f/t" / name).stat().st_mode & 0o777 for name in ("a.sh", "b")] == [0o755, 0o644]


def test_a_hard_link_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    found = unpacked(packed(member("a", b"one"), link("b", "a", tarfile.LNKTYPE)), tmp_path / "f")
    assert found == {"a": b"one", "b": b"one"}
    assert (tmp_path / "f/a").stat().st_nlink == 1


@pytest.mark.parametrize(
    "members",
    [
        [member("../out", b"x")],
        [member("/out", b"x")],
        [member("a/../../out", b"x")],
        [link("a", "../out")],
        [link("a", "/etc/passwd")],
        [link("d/a", "../../out")],
        [link("a", "."), member("b", b"x")],
        [member("d/x", b"x"), link("b", "d"), link("c", "b")],
        [member("z/x", b"x"), member("p/q/x", b"x"), link("p/q/b", "../../z"), link("c", "p/q/b/../../o")],
        [member("z/x", b"x"), member("p/q/x", b"x"), link("p/q/b", "../../z"), link("p/q/b/c", "../../o")],
        [link("d", "."), member("d/out", b"x")],
        [link("b", "../out", tarfile.LNKTYPE)],
        [link("b", "none", tarfile.LNKTYPE)],
        [member("pipe", type=tarfile.FIFOTYPE)],
        [member("disk", type=tarfile.BLKTYPE)],
        [member("a", b"x"), member("a/b", b"x")],
        [member("n" * 300, b"x")],
    ],
)
def test_what_leads_out_or_is_no_file_is_refused(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    with pytest.raises(ArchiveError):
        unpacked(packed(*members), tmp_path / "f")
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="taken"):
        unpacked(packed(member("real/x", b"1"), link("d", "real"), member("d/x", b"2")), tmp_path / "f")
    assert (tmp_path / "f/real/x").read_bytes() == b"1"


@pytest.mark.parametrize("allowance", [Allowance(size=LARGE - 1), Allowance(files=1)], ids=["bytes", "entries"])
def test_an_archive_that_grows_too_large_is_refused(tmp_path: Path, allowance: Allowance) -> None:
    content = gzip.compress(packed(member("a", bytes(LARGE)), member("b", b"")))
    assert len(content) < LARGE // 100
    with pytest.raises(ArchiveError, match="unpacks to more than"):
        unpacked(content, tmp_path / "f", allowance)


def test_copies_of_a_hard_link_count(tmp_path: Path) -> None:
    content = packed(member("a", bytes(100)), link("b", "a", tarfile.LNKTYPE))
    with pytest.raises(ArchiveError, match="unpacks to more than"):
        unpacked(content, tmp_path / "f", Allowance(size=150))


def test_a_header_that_claims_gigabytes_is_not_read(tmp_path: Path) -> None:
    info, _ = member("a", type=tarfile.XHDTYPE)
    info.size = 4 << 30
    with pytest.raises(ArchiveError, match="claims 4294967296 bytes"):
        unpacked(info.tobuf(tarfile.USTAR_FORMAT) + bytes(1024), tmp_path / "f")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"no archive", id="text"),
        pytest.param(b"", id="nothing"),
        pytest.param(gzip.compress(b"no archive"), id="text in gzip"),
        pytest.param(gzip.compress(packed(member("a", bytes(range(256)) * 40)))[:-40], id="gzip cut short"),
        pytest.param(packed(member("a", bytes(LARGE)))[: LARGE // 2], id="tar cut short"),
        pytest.param(b"\x1f\x8b" + b"x" * 100, id="gzip's first bytes alone"),
        pytest.param(b"\xfd7zXZ" + b"x" * 100, id="xz's first bytes alone"),
    ],
)
def test_what_is_no_whole_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArchiveError):
        unpacked(content, tmp_path / "f")
