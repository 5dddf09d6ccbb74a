"""Text to train on and to test with: bytes, split by document, read through memory maps.

A corpus is prepared once, file by file, and kept in a cache folder; a batch is a function of the seed and the number of
the step, so that a training goes on where it stopped by the number of the step alone. Chapter 12.
"""

from __future__ import annotations

import hashlib
import http.client
import platform
import shutil
import sysconfig
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from rope_lessons._checks import check_count, check_share
from rope_lessons.models.byte_lm import is_held_out
from rope_lessons.stored import Refusal, flush, locked, read_sealed, write_sealed, write_whole

CACHE = Path.home() / ".cache" / "rope_lessons"
FORMAT = 2  # of a prepared corpus: a change here prepares anew
LARGEST = 2**28  # bytes of an archive that are downloaded
LARGEST_FILE = 2**30  # bytes of a file in it that are unpacked
LEAK = 0.2  # a held-out document with a larger share of its passages in the training text is left out
GRAM, ONE_IN = 32, 64  # passages of 32 bytes are compared, about one in 64 of them


class CorpusError(Refusal):
    """A corpus that cannot be had, or cannot be used."""


@dataclass(frozen=True)
class Corpus:
    """A prepared corpus. The texts are memory maps: what is not looked at is not in memory.

    Args:
        train: uint8, all training documents in one row.
        test: uint8, all held-out documents in one row.
        starts: int64, where each held-out document begins; and where the last one ends.
        about: name, sizes, what was left out, and ``"sha256"`` of both texts.
    """

    train: np.ndarray
    test: np.ndarray
    starts: np.ndarray
    about: Mapping[str, Any]


# --- where the text comes from -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A document, or as much of it as is read at once."""

    content: bytes
    held_out: bool


@dataclass(frozen=True)
class Stretch:
    """A stretch of a file in an archive."""

    member: str
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Download:
    """A corpus that is an archive somewhere."""

    url: str
    sha256: str
    train: Stretch
    test: Stretch


DOWNLOADS = {
    # The usual split: 90 million bytes to train on, 5 to choose with (not used here), 5 to test with.
    "enwik8": Download(
        "https://mattmahoney.net/dc/enwik8.zip",
        "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        Stretch("enwik8", 0, 90_000_000),
        Stretch("enwik8", 95_000_000, 100_000_000),
    ),
}


def open_corpus(source: str | Path = "stdlib", cache: Path = CACHE, held_out: int = 1) -> Corpus:
    """A corpus by its name or its folder; prepared at the first use, and compared with its SHA-256 whenever it is
    opened, which takes about 0.1 s per 100 MB (0.3 s on a processor without instructions for it).

    One file in twenty, or ``held_out`` in twenty, is held out, by its name alone, and at least one. A held-out document
    is left out if more than a fifth of its passages of 32 bytes stand in the training text too: copies with small
    changes would make the test a test of memory. The comparison takes about one passage in 64, chosen by a hash of what
    it says.

    Args:
        source: ``"stdlib"`` (the Python files of the running Python's standard library, with its tests),
            ``"enwik8"`` (downloaded), or a folder: every file in it without a zero byte.
        cache: where prepared corpora are kept.
        held_out: how many files in twenty are held out, from 1 to 19; a download has its own split.

    Raises:
        TypeError, ValueError: ``held_out`` out of range.
        CorpusError: an unknown name that is no folder either; a folder with too little text; no way to download;
            a download that is not what it should be; a prepared corpus that is damaged; a cache that cannot be written
            to, or a full disk.

    Chapter 12.
    """
    check_source(source)
    check_count("held_out", held_out, 1, 19, "some must be trained on")
    if str(source) in DOWNLOADS:
        return _downloaded(str(source), DOWNLOADS[str(source)], cache)
    if str(source) == "stdlib":
        root = Path(sysconfig.get_path("stdlib"))
        skipped = {"site-packages", "dist-packages", "__pycache__"}
        # _sysconfigdata describes the machine and not the language.
        paths = [path for path in root.rglob("*.py") if "_sysconfigdata" not in path.name]
        name = f"stdlib-{platform.python_version()}"
        return _from_files(name, root, [path for path in paths if not skipped & set(path.parts)], cache, held_out)
    folder = Path(source)
    return _from_files(
        folder.resolve().name, folder, [path for path in folder.rglob("*") if path.is_file()], cache, held_out
    )


def check_source(source: str | Path) -> None:
    """Refuse what is neither a name nor a folder, before any text is read.

    Raises:
        CorpusError: an unknown name that is no folder either.
    """
    known = ("stdlib", *DOWNLOADS)
    folder = source != "" and Path(source).is_dir()  # Path("") is the folder that we are in
    if not folder and str(source) not in known:
        raise CorpusError(f"corpus must be one of {', '.join(known)}, or a folder of text, got {str(source)!r}")


def _from_files(name: str, root: Path, paths: list[Path], cache: Path, share: int) -> Corpus:
    files = {path.relative_to(root).as_posix(): path for path in sorted(paths)}
    if strange := [file for file in files if not _is_unicode(file)]:
        raise CorpusError(f"corpus must have files whose names are text, got {strange[0]!a} in {root}")
    texts = {file: path for file, path in files.items() if not _is_binary(path)}
    if len(texts) < 2:
        raise CorpusError(f"corpus must have at least two files of text, to train and to test; {root} has {len(texts)}")
    held_out = {file for file in texts if is_held_out(file, share)} or {
        min(texts, key=lambda file: zlib.crc32(file.encode()))
    }

    def pieces() -> Iterator[Piece]:
        for file, path in texts.items():
            with path.open("rb") as stream:
                for content in _blocks(stream, 2**22):
                    yield Piece(content, file in held_out)

    state = [(file, path.stat().st_size, path.stat().st_mtime_ns) for file, path in texts.items()]
    return prepare(name, repr((share, state)), pieces, cache)


def _is_unicode(name: str) -> bool:
    """Bytes in a name that are no text become halves of characters in Python."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _is_binary(path: Path) -> bool:
    with path.open("rb") as stream:
        return b"\0" in stream.read(2**13)


def _blocks(stream: IO[bytes], size: int, limit: int | None = None) -> Iterator[bytes]:
    """What is left of a stream, or its next ``limit`` bytes, in pieces of at most ``size``."""
    left = limit
    while content := stream.read(size if left is None else min(size, left)):
        yield content
        if left is not None:
            left -= len(content)


# --- downloads -----------------------------------------------------------------------------------------------------


def _downloaded(name: str, what: Download, cache: Path) -> Corpus:
    def pieces() -> Iterator[Piece]:
        archive = fetch(name, what, cache)
        try:
            with zipfile.ZipFile(archive) as opened:
                for stretch, held_out in ((what.train, False), (what.test, True)):
                    for content in _read_stretch(opened, stretch):
                        yield Piece(content, held_out)
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            raise CorpusError(f"{archive} does not hold what {name} should have: {error}") from error

    return prepare(name, what.sha256, pieces, cache)


def _read_stretch(archive: zipfile.ZipFile, stretch: Stretch) -> Iterator[bytes]:
    """The stretch in documents of 64 KiB: the archives do not say where one text ends."""
    if (size := archive.getinfo(stretch.member).file_size) > LARGEST_FILE:
        raise CorpusError(
            f"{archive.filename} must have at most {LARGEST_FILE:,} bytes in {stretch.member}, got {size:,}"
        )
    with archive.open(stretch.member) as stream:
        stream.seek(stretch.begin)
        yield from _blocks(stream, 2**16, None if stretch.end is None else stretch.end - stretch.begin)


def fetch(name: str, what: Download, cache: Path = CACHE) -> Path:
    """The archive of a corpus, downloaded unless it is in the cache. Its checksum is compared in both cases.

    Raises:
        CorpusError: its address does not answer, or what comes has another checksum.
    """
    target = cache / Path(what.url).name
    if target.exists():
        if _sha256(target) == what.sha256:
            return target
        raise CorpusError(f"{target} is damaged: its SHA-256 is not that of {name}. Delete it to download it again")
    cache.mkdir(parents=True, exist_ok=True)
    try:
        write_whole(target, lambda unfinished: _download(what.url, what.sha256, unfinished))
    except CorpusError as error:
        raise CorpusError(
            f"{name} could not be downloaded. Without a connection, put the archive into {target}, or train on another "
            f"corpus (stdlib needs no connection). {what.url}: {error}"
        ) from error
    return target


def _download(url: str, sha256: str, path: Path) -> None:
    with path.open("wb") as file:
        for content in _answer(url):
            file.write(content)
    if (found := _sha256(path)) != sha256:
        raise CorpusError(f"what came has the SHA-256 {found}, not {sha256}")


def _answer(url: str) -> Iterator[bytes]:
    """What comes from an address, as long as it is not too much. Its errors are those of the network alone."""
    request, size = urllib.request.Request(url, headers={"User-Agent": "rope-lessons"}), 0  # some refuse Python's own
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            for content in _blocks(answer, 2**20):
                if (size := size + len(content)) > LARGEST:
                    raise CorpusError(f"what comes has more than {LARGEST:,} bytes")
                yield content
    except (OSError, http.client.HTTPException) as error:  # URLError and a timeout are OSErrors
        raise CorpusError(str(getattr(error, "reason", error))) from error


def _sha256(*paths: Path) -> str:
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            for content in _blocks(stream, 2**20):
                found.update(content)
    return found.hexdigest()


# --- preparing -----------------------------------------------------------------------------------------------------


def fingerprints(content: bytes) -> np.ndarray:
    """Hashes of about one in 64 of the passages of 32 bytes, sorted uint64. A passage is chosen by its own hash, so two
    texts that share a long stretch share the fingerprints in it, wherever it stands."""
    if len(content) < GRAM:
        return np.empty(0, np.uint64)
    hashes, multiplier, width = np.frombuffer(content, np.uint8).astype(np.uint64), 0x9E3779B97F4A7C15, 1
    while width < GRAM:  # the hash of 2n bytes from those of n: h(xy) = h(x) m^n + h(y), modulo 2^64
        hashes = hashes[:-width] * np.uint64(multiplier) + hashes[width:]
        multiplier, width = multiplier**2 % 2**64, 2 * width
    mixed = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return np.sort(mixed[mixed % np.uint64(ONE_IN) == 0])


def shared_passages(own: np.ndarray, seen: np.ndarray) -> float:
    """The share of fingerprints that are among others, which are sorted; 1 if there is none, too few bytes to tell."""
    if not len(own):
        return 1.0
    places = np.searchsorted(seen, own).clip(max=max(0, len(seen) - 1))
    return float((seen[places] == own).mean()) if len(seen) else 0.0


def prepare(name: str, state: str, pieces: Callable[[], Iterable[Piece]], cache: Path = CACHE) -> Corpus:
    """Write the two texts of a corpus, piece by piece, unless a folder for the same ``state`` is there already.

    Args:
        name: begins the name of the folder.
        state: says exactly what goes in; another state is another folder.
        pieces: called without arguments, gives the pieces in order; called twice, for the held-out ones are compared
            with all training text.
        cache: where the folder is.

    Raises:
        CorpusError: no text to train on or to test with; a folder that is there and damaged; a cache that cannot be
            written to, or a full disk.
    """
    key = hashlib.sha256(f"{FORMAT}{state}".encode()).hexdigest()
    folder = cache / f"{name}-{key[:16]}"
    if not folder.exists():
        _check_cache(cache)
        with locked(cache / ".lock"):  # another process may prepare it just now
            if not folder.exists():
                _prepare(name, pieces, folder)
    return _open(folder)


def _check_cache(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        raise CorpusError(f"cache must be a folder that can be written to, got {str(cache)!r}: {error}") from error


def _prepare(name: str, pieces: Callable[[], Iterable[Piece]], folder: Path) -> None:
    """The folder gets its name when all of it is on the disk."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    try:
        unfinished.mkdir()
        _write(name, pieces, unfinished)
        for path in (*sorted(unfinished.iterdir()), unfinished):
            flush(path)
        unfinished.rename(folder)
        flush(folder.parent)
    except OSError as error:
        raise CorpusError(f"corpus {name} could not be prepared in {folder}: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _write(name: str, pieces: Callable[[], Iterable[Piece]], folder: Path) -> None:
    known = []
    with (folder / "train.bin").open("wb") as train:
        for piece in pieces():
            if not piece.held_out:
                train.write(piece.content)
                known.append(fingerprints(piece.content))
    seen = np.concatenate([np.empty(0, np.uint64), *known])
    seen.sort()
    starts, left_out, shared = [0], 0, []
    with (folder / "test.bin").open("wb") as test:
        for piece in pieces():
            if not piece.held_out:
                continue
            share = shared_passages(fingerprints(piece.content), seen)
            if share > LEAK:
                left_out += 1
                continue
            test.write(piece.content)
            starts.append(starts[-1] + len(piece.content))
            shared.append(share)
    train_bytes, test_bytes = ((folder / file).stat().st_size for file in ("train.bin", "test.bin"))
    if not train_bytes or not test_bytes:
        raise CorpusError(f"corpus {name} has no text left to train on or to test with; {left_out} held-out documents "
                          f"were left out as near-duplicates of training text or too short")  # fmt: skip
    np.save(folder / "starts.npy", np.array(starts, dtype=np.int64))
    about = {
        "name": name,
        "train_bytes": train_bytes,
        "test_bytes": test_bytes,
        "test_documents": len(shared),
        "left_out_documents": left_out,
        "shared_passages": round(float(np.mean(shared)), 4),  # what is left of them in the test text
        "sha256": _sha256(folder / "train.bin", folder / "test.bin"),
        "files": {file: _sha256(folder / file) for file in ("train.bin", "test.bin", "starts.npy")},
    }
    write_sealed(folder / "about.json", about)


def _open(folder: Path) -> Corpus:
    """A prepared corpus, if each of its files is what was written."""
    file = "about.json"
    try:
        about = read_sealed(folder / file)
        for file, sha256 in about["files"].items():
            if _sha256(folder / file) != sha256:
                raise ValueError("its SHA-256 is not the one that it was written with")
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"{folder / file} is damaged: {error}. Delete the folder {folder} to prepare the corpus anew"
        ) from error
    train, test = (np.memmap(folder / file, dtype=np.uint8, mode="r") for file in ("train.bin", "test.bin"))
    return Corpus(train, test, np.load(folder / "starts.npy"), about)


# --- training batches ----------------------------------------------------------------------------------------------


def batch_of(
    text: np.ndarray,
    step: int,
    *,
    seed: int,
    batch: int,
    length: int,
    copies: float = 0.0,
    rows: slice = slice(None),
) -> Tensor:
    """The windows of one training step, int64 ``(rows, length + 1)``. They depend on the arguments alone.

    Args:
        text: uint8, one row.
        step: number of the step, from 0.
        seed: of all steps.
        batch: number of windows of a step, all processes together.
        length: tokens that the model reads in a window.
        copies: share of the windows in which a later piece is replaced by a copy of an earlier one.
        rows: which windows of the step are wanted. The others are not read.

    Raises:
        TypeError, ValueError: counts that are no ints or too small; a share that is none; a text that is shorter than a
            window.

    Chapter 12.

    >>> text = np.arange(100, dtype=np.uint8)
    >>> first = batch_of(text, step=7, seed=0, batch=4, length=8)
    >>> torch.equal(first[1:], batch_of(text, step=7, seed=0, batch=4, length=8, rows=slice(1, 4)))
    True
    """
    for name, value, least in (("step", step, 0), ("seed", seed, 0), ("batch", batch, 1), ("length", length, 1)):
        check_count(name, value, least)
    check_share("copies", copies)
    if len(text) <= length:
        raise ValueError(f"length must be below that of the text, {len(text)}, got {length}")
    random = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, step]))  # counts: no steps before this
    starts = random.integers(len(text) - length, size=(batch, 1))
    places = np.tile(np.arange(length + 1), (batch, 1))
    if copies:
        places = _paste(places, random, copies)
    return torch.from_numpy(text[(starts + places)[rows]].astype(np.int64))


def _paste(places: np.ndarray, random: np.random.Generator, share: float) -> np.ndarray:
    """Places to read from, where some rows read an earlier piece a second time: an eighth to a half of the window,
    begun anywhere, read again anywhere after its end."""
    rows, end = places.shape
    size = random.integers(end // 8, end // 2, size=(rows, 1), endpoint=True)
    source = (random.random((rows, 1)) * (end - 2 * size + 1)).astype(np.int64)
    back = size + (random.random((rows, 1)) * (end - 2 * size - source + 1)).astype(np.int64)
    chosen = random.random((rows, 1)) < share
    again = chosen & (places >= source + back) & (places < source + back + size)
    return np.where(again, places - back, places)


# --- test windows --------------------------------------------------------------------------------------------------


def natural_windows(corpus: Corpus, length: int, count: int) -> tuple[Tensor, Tensor]:
    """The test set *not repeated*: pieces of held-out documents, none of which overlap.

    Args:
        corpus: a prepared corpus.
        length: tokens that the model reads in a window.
        count: how many windows at most. The first piece of every document that is long enough comes before the second
            of any; documents come in a fixed, mixed order.

    Returns:
        windows, int64 ``(windows, length + 1)``, and the number of the document of each, int64 ``(windows,)``.

    Raises:
        CorpusError: no document is long enough.

    Chapter 12.
    """
    size = length + 1
    order = np.random.Generator(np.random.Philox(key=0)).permutation(len(corpus.starts) - 1)
    pieces = np.diff(corpus.starts) // size
    chosen = [(turn, doc) for turn in range(pieces.max(initial=0)) for doc in order if turn < pieces[doc]][:count]
    if not chosen:
        longest = np.diff(corpus.starts).max(initial=0)
        raise CorpusError(f"no held-out document has {size} bytes; the longest has {longest}. Test at shorter lengths")
    windows = [corpus.test[(begin := corpus.starts[doc] + turn * size) : begin + size] for turn, doc in chosen]
    return torch.from_numpy(np.stack(windows).astype(np.int64)), torch.tensor([int(doc) for _, doc in chosen])


def repeated_windows(windows: Tensor, train_length: int) -> Tensor:
    """The test set *repeated*: of each window the first bytes, repeated until it is full.

    How many is half the training length, then all of it, then twice it, and so on up to half the window; the windows
    take turns. So all that stands after the first of these bytes can be copied, from as far back as that.

    Args:
        windows: of the test set *not repeated*, int64 ``(windows, length + 1)``.
        train_length: :math:`N`.

    Returns:
        like ``windows``.

    Chapter 12 compares it with the set of the articles.

    >>> repeated_windows(torch.arange(18).view(2, 9), train_length=4)
    tensor([[ 0,  1,  0,  1,  0,  1,  0,  1,  0],
            [ 9, 10, 11, 12,  9, 10, 11, 12,  9]])
    """
    length = windows.shape[1] - 1
    cycle = torch.from_numpy(np.resize(periods(length, train_length), len(windows)))[:, None]
    return windows.gather(1, (torch.arange(length + 1) % cycle).to(windows.device))


def periods(length: int, train_length: int) -> list[int]:
    """How many bytes are repeated in windows of a length; see :func:`repeated_windows`.

    Raises:
        ValueError: a window shorter than the training length.

    >>> periods(512, train_length=64)
    [32, 64, 128, 256]
    """
    found = [period for period in (train_length // 2 * 2**n for n in range(64)) if 1 <= period <= length // 2]
    if not found:
        raise ValueError(f"windows must be at least as long as train_length = {train_length}, got {length}")
    return found
