"""Corpora: split by document without leaks, memory-mapped, downloaded with a checksum; batches; the two test sets."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from rope_lessons.lab import text
from rope_lessons.lab.text import CorpusError, Download, Piece, Stretch, batch_of
from rope_lessons.stored import locked

RANDOM = np.random.Generator(np.random.Philox(key=1))


def random_text(size: int) -> bytes:
    return RANDOM.integers(32, 127, size=size, dtype=np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Many files, so that some are held out, one binary, and one in a subfolder."""
    root = tmp_path / "texts"
    (root / "sub").mkdir(parents=True)
    for number in range(90):
        (root / f"{number}.txt").write_bytes(random_text(3000))
    (root / "sub" / "more.md").write_bytes(random_text(3000))
    (root / "picture.png").write_bytes(b"\x89PNG\0" + random_text(3000))
    return root


# --- folders -------------------------------------------------------------------------------------------------------


def test_a_folder_is_split_by_file(folder, tmp_path):
    corpus = text.open_corpus(folder, tmp_path / "cache")
    train, test = corpus.train.tobytes(), corpus.test.tobytes()
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        name, content = path.relative_to(folder).as_posix(), path.read_bytes()
        held_out = text.is_held_out(name)
        assert (content in train) == (not held_out and name != "picture.png")
        assert (content in test) == held_out
    documents = [test[a:b] for a, b in pairwise(corpus.starts)]
    assert set(documents) == {path.read_bytes() for path in files if text.is_held_out(path.name)}
    assert corpus.about["test_documents"] == len(documents) >= 1
    assert corpus.about["sha256"] == hashlib.sha256(train + test).hexdigest()


def test_a_corpus_is_prepared_once_and_again_after_a_change(folder, tmp_path, monkeypatch):
    first = text.open_corpus(folder, tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(text, "_write", lambda *_: pytest.fail("prepared a second time"))
        assert text.open_corpus(folder, tmp_path / "cache").about == first.about
    (folder / "0.txt").write_bytes(random_text(5000))
    assert text.open_corpus(folder, tmp_path / "cache").about["sha256"] != first.about["sha256"]
    assert {path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()} == {"texts", ".lock"}


def test_one_process_prepares_and_the_others_wait(folder, tmp_path):
    """The same corpus from two threads while a third holds the cache: it is written once."""
    written, real = [], text._write
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr(text, "_write", lambda *arguments: [written.append(1), real(*arguments)])
        with locked(tmp_path / "cache" / ".lock", "nobody has it"):
            opened = [pool.submit(text.open_corpus, folder, tmp_path / "cache") for _ in range(2)]
            time.sleep(0.2)
            assert not written
        first, second = (one.result() for one in opened)
    assert first.about == second.about
    assert written == [1]


def test_what_a_killed_preparation_left_goes(folder, tmp_path):
    first = text.open_corpus(folder, tmp_path / "cache")
    [made] = (tmp_path / "cache").glob("texts-*")
    made.rename(made.with_name(f"{made.name}.unfinished"))
    (made.with_name(f"{made.name}.unfinished") / "stray").write_text("half")
    assert text.open_corpus(folder, tmp_path / "cache").about == first.about
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {made.name, ".lock"}
    assert {path.name for path in made.iterdir()} == {"train.bin", "test.bin", "starts.npy", "about.json"}


def test_all_of_a_corpus_is_on_the_disk_before_it_has_its_name(folder, tmp_path, monkeypatch):
    flushed, real = [], Path.rename
    monkeypatch.setattr(text, "flush", lambda path: flushed.append(path.name))
    monkeypatch.setattr(Path, "rename", lambda self, to: [flushed.append("renamed"), real(self, to)])
    text.open_corpus(folder, tmp_path / "cache")
    [made] = (tmp_path / "cache").glob("texts-*")
    names = ["about.json", "starts.npy", "test.bin", "train.bin"]
    assert flushed == [*names, f"{made.name}.unfinished", "renamed", "cache"]


def test_a_small_folder_holds_out_one_file(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_bytes(random_text(3000))
    assert not any(text.is_held_out(f"{number}.txt") for number in range(3))
    corpus = text.open_corpus(tmp_path, tmp_path.parent / "cache")
    assert (len(corpus.train), len(corpus.test)) == (6000, 3000)


def test_near_duplicates_of_training_text_are_left_out(tmp_path):
    original = random_text(20_000)
    edited = b"# another head\n" + original[:9000] + b" a changed line in the middle " + original[9100:]
    half = original[:10_000] + random_text(10_000)
    little = original[:2000] + random_text(18_000)
    held_out = [edited, half, little, random_text(20_000)]
    pieces = [Piece(original, False), *(Piece(content, True) for content in held_out)]
    corpus = text.prepare("copies", "1", lambda: pieces, tmp_path)
    assert corpus.test.tobytes() == little + held_out[3]
    assert corpus.about["left_out_documents"] == 2


def test_fingerprints_are_those_of_the_passages():
    """The doubling gives the hash of each passage of 32 bytes and of nothing else."""
    content = random_text(4000)
    whole = text.fingerprints(content)
    assert 20 < len(whole) < 140  # one in 64 of 3969
    alone = np.concatenate([text.fingerprints(content[i : i + 32]) for i in range(len(content) - 31)])
    assert np.array_equal(np.sort(alone), whole)
    assert np.isin(text.fingerprints(content[100:3000]), whole).all()
    assert not np.isin(text.fingerprints(random_text(4000)), whole).any()


def test_the_standard_library_has_its_tests_and_no_leaks(tmp_path, monkeypatch):
    """On a small one with every kind of file, for not every Python comes with its tests, and all of it takes long."""
    root = tmp_path / "lib"
    kept = ("email/parser.py", "test/test_email.py", "unittest/test/support.py", "held_out.py")
    skipped = (
        "site-packages/torch.py", "dist-packages/apt.py", "email/__pycache__/parser.py", "_sysconfigdata__linux_.py",
        "email/architecture.rst",
    )  # fmt: skip
    texts = {name: random_text(5000) for name in (*kept, *skipped)}
    texts["leak.py"] = texts["test/test_email.py"] + random_text(5000)
    for name, content in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    monkeypatch.setattr(text.sysconfig, "get_path", lambda _: str(root))
    monkeypatch.setattr(text, "is_held_out", lambda name, share: name in ("held_out.py", "leak.py"))
    corpus = text.open_corpus("stdlib", tmp_path / "cache")
    assert corpus.about["name"].startswith("stdlib-3.")
    assert corpus.train.tobytes() == b"".join(texts[name] for name in kept[:-1])
    assert corpus.test.tobytes() == texts["held_out.py"]
    assert corpus.about["left_out_documents"] == 1


def test_a_cache_that_cannot_be_written_to(folder, tmp_path):
    (tmp_path / "file").write_text("no folder")
    for place in (tmp_path / "file", tmp_path / "file" / "cache", Path("/proc/nowhere")):
        with pytest.raises(CorpusError, match=f"cache must be a folder that can be written to, got '{place}': "):
            text.open_corpus(folder, place)


def test_the_corpus_is_not_in_memory(tmp_path):
    """Preparing 16 MiB and reading batches from it takes a small part of that."""
    block = random_text(2**16)
    pieces = [Piece(block, False)] * 255 + [Piece(random_text(2**16), True)]
    tracemalloc.start()
    corpus = text.prepare("large", "1", lambda: pieces, tmp_path)
    batch_of(corpus.train, 3, seed=0, batch=8, length=512)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(corpus.train, np.memmap)
    assert isinstance(corpus.test, np.memmap)
    assert len(corpus.train) == 255 * 2**16
    assert peak < 8 * 2**20, peak  # a piece with its hashes, and fingerprints: an eighth of the text, twice


def test_folders_without_enough_text(tmp_path):
    with pytest.raises(CorpusError, match="corpus must be one of stdlib, enwik8, or a folder"):
        text.open_corpus("no-such-thing", tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.txt").write_text("alone")
    with pytest.raises(CorpusError, match=r"at least two files of text, .* has 1"):
        text.open_corpus(tmp_path / "one", tmp_path)
    (tmp_path / "one" / "b.txt").write_text("short")
    with pytest.raises(CorpusError, match="no text left to train on or to test with; 1 held-out"):
        text.open_corpus(tmp_path / "one", tmp_path)


# --- downloads -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(root: Path) -> Iterator[tuple[str, list[str]]]:
    """The folder on localhost; and the list of what was asked for."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=root))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def archive(root: Path, members: dict[str, bytes]) -> str:
    """Write ``small.zip``; its SHA-256."""
    root.mkdir(exist_ok=True)
    with zipfile.ZipFile(root / "small.zip", "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return hashlib.sha256((root / "small.zip").read_bytes()).hexdigest()


def test_a_download_is_fetched_once_checked_and_split(tmp_path, monkeypatch):
    content = random_text(300_000)
    sha256 = archive(tmp_path / "web", {"small": content})
    with served(tmp_path / "web") as (url, asked):
        what = Download(f"{url}/small.zip", sha256, Stretch("small", 0, 200_000),
                        Stretch("small", 230_000, 300_000))  # fmt: skip
        monkeypatch.setitem(text.DOWNLOADS, "small", what)
        corpus = text.open_corpus("small", tmp_path / "cache")
        assert corpus.train.tobytes() == content[:200_000]
        assert corpus.test.tobytes() == content[230_000:]
        assert np.diff(corpus.starts).tolist() == [65536, 70_000 - 65536]
        asked.clear()
        again = text.open_corpus("small", tmp_path / "cache")
        assert again.about == corpus.about
        assert not asked


def test_a_download_of_several_files(tmp_path, monkeypatch):
    parts = {name: random_text(3000) for name in ("raw/train", "raw/valid", "raw/test")}
    sha256 = archive(tmp_path / "web", parts)
    with served(tmp_path / "web") as (url, _):
        what = Download(f"{url}/small.zip", sha256, Stretch("raw/train"), Stretch("raw/test"))
        monkeypatch.setitem(text.DOWNLOADS, "small", what)
        corpus = text.open_corpus("small", tmp_path / "cache")
    assert (corpus.train.tobytes(), corpus.test.tobytes()) == (parts["raw/train"], parts["raw/test"])


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(tmp_path, monkeypatch):
    archive(tmp_path / "web", {"small": b"other"})
    with served(tmp_path / "web") as (url, _):
        what = Download(f"{url}/small.zip", "0" * 64, Stretch("small"), Stretch("small"))
        monkeypatch.setitem(text.DOWNLOADS, "small", what)
        with pytest.raises(CorpusError, match=r"what came has the SHA-256 [0-9a-f]{64}, not 0{64}"):
            text.open_corpus("small", tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_damaged_archive_in_the_cache_is_refused(tmp_path, monkeypatch):
    (tmp_path / "enwik8.zip").write_bytes(b"half of it")
    with pytest.raises(CorpusError, match=r"enwik8\.zip is damaged: .* Delete it to download it again"):
        text.open_corpus("enwik8", tmp_path)


def test_offline_is_said_clearly(tmp_path, monkeypatch):
    with served(tmp_path) as (url, _):
        pass  # the server has stopped: nobody answers at its address
    what = Download(f"{url}/small.zip", "0" * 64, Stretch("small"), Stretch("small"))
    monkeypatch.setitem(text.DOWNLOADS, "small", what)
    wanted = (
        r"small could not be downloaded. Without a connection, put the archive into .*small.zip.*Connection refused"
    )
    with pytest.raises(CorpusError, match=wanted):
        text.open_corpus("small", tmp_path / "cache")


def test_an_archive_without_the_member_is_refused(tmp_path, monkeypatch):
    sha256 = archive(tmp_path / "web", {"other": b"text"})
    with served(tmp_path / "web") as (url, _):
        what = Download(f"{url}/small.zip", sha256, Stretch("small"), Stretch("small"))
        monkeypatch.setitem(text.DOWNLOADS, "small", what)
        with pytest.raises(CorpusError, match=r"small\.zip does not hold what small should have"):
            text.open_corpus("small", tmp_path / "cache")


def test_a_download_has_a_limit(tmp_path, monkeypatch):
    """Of what comes, and of what a file in the archive says that it holds; nothing is kept."""
    monkeypatch.setattr(text, "LARGEST", 2000)
    sha256 = archive(tmp_path / "web", {"small": random_text(3000)})
    with served(tmp_path / "web") as (url, _):
        what = Download(f"{url}/small.zip", sha256, Stretch("small"), Stretch("small"))
        monkeypatch.setitem(text.DOWNLOADS, "small", what)
        with pytest.raises(CorpusError, match=r"small\.zip: what comes has more than 2,000 bytes"):
            text.open_corpus("small", tmp_path / "cache")
        assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]
        monkeypatch.setattr(text, "LARGEST", 10_000)
        monkeypatch.setattr(text, "LARGEST_FILE", 2000)
        with pytest.raises(CorpusError, match=r"small\.zip must have at most 2,000 bytes in small, got 3,000"):
            text.open_corpus("small", tmp_path / "cache")
        assert {path.name for path in (tmp_path / "cache").iterdir()} == {".lock", "small.zip"}


# --- batches -------------------------------------------------------------------------------------------------------

ROW = np.arange(200, dtype=np.uint8)  # every byte says where it stands


def test_a_batch_depends_on_seed_and_step_alone():
    settings = {"seed": 3, "batch": 6, "length": 16, "copies": 0.5}
    batch = batch_of(ROW, 5, **settings)
    assert batch.shape == (6, 17)
    assert batch.dtype == torch.int64
    batch_of(ROW, 6, **settings)
    assert torch.equal(batch_of(ROW, 5, **settings), batch)
    assert torch.equal(torch.cat([batch_of(ROW, 5, **settings, rows=slice(r, None, 2)) for r in (0, 1)]),
                       torch.cat([batch[0::2], batch[1::2]]))  # fmt: skip
    assert not torch.equal(batch_of(ROW, 6, **settings), batch)
    assert not torch.equal(batch_of(ROW, 5, **{**settings, "seed": 4}), batch)


def test_steps_far_apart_share_no_random_numbers():
    """The step is the high word of the counter: a step would need 2^192 draws to reach the next."""
    starts = [batch_of(np.arange(2**16) % 251, step, seed=0, batch=64, length=1)[:, 0] for step in range(20)]
    assert len(torch.stack(starts).unique(dim=0)) == 20


def test_windows_are_stretches_of_the_text_and_every_start_occurs():
    batch = batch_of(ROW, 0, seed=0, batch=4000, length=180)
    assert (batch.diff(dim=1) == 1).all()
    assert batch[:, 0].unique().tolist() == list(range(20))
    with pytest.raises(ValueError, match="length must be below that of the text, 200, got 200"):
        batch_of(ROW, 0, seed=0, batch=1, length=200)
    with pytest.raises(ValueError, match="step must be an int of at least 0, got -1"):
        batch_of(ROW, -1, seed=0, batch=1, length=8)
    with pytest.raises(ValueError, match="copies must be a number from 0 to 1, got 3"):
        batch_of(ROW, 0, seed=0, batch=1, length=8, copies=3)


def test_half_of_the_windows_hold_a_copy():
    """A copied row is its window but for one piece, which stands earlier in the row."""
    batch = batch_of(ROW, 0, seed=0, batch=400, length=63, copies=0.5)
    copied = 0
    for row in batch.tolist():
        places = [byte - row[0] for byte in row]
        back = {i - place for i, place in enumerate(places)} - {0}
        if back:
            copied += 1
            (distance,) = back
            inside = [i for i, place in enumerate(places) if i != place]
            assert inside == list(range(inside[0], inside[-1] + 1))
            assert 8 <= len(inside) <= 32
            assert distance >= len(inside)  # what is copied ends before the copy begins
            assert places[inside[0]] >= 0
    assert 160 < copied < 240


# --- the two test sets ---------------------------------------------------------------------------------------------


def small_corpus(sizes: tuple[int, ...]) -> text.Corpus:
    starts = np.cumsum([0, *sizes])
    return text.Corpus(ROW, np.arange(starts[-1]) % 256, starts, {})


def test_natural_windows_do_not_overlap_and_stay_in_their_document():
    corpus = small_corpus((30, 8, 19, 50))
    windows, documents = text.natural_windows(corpus, length=9, count=100)
    assert sorted(documents.tolist()) == [0] * 3 + [2] + [3] * 5
    assert set(documents[:3].tolist()) == {0, 2, 3}  # a first piece of each before a second of any
    for window, document in zip(windows, documents.tolist(), strict=True):
        place = window[0].item() - corpus.starts[document]
        assert place % 10 == 0
        assert place + 10 <= corpus.starts[document + 1] - corpus.starts[document]
        assert torch.equal(window, torch.arange(10) + window[0])
    assert len(windows[:, 0].unique()) == 9
    few, _ = text.natural_windows(corpus, length=9, count=4)
    assert torch.equal(few, windows[:4])
    with pytest.raises(CorpusError, match="no held-out document has 51 bytes; the longest has 50"):
        text.natural_windows(corpus, length=50, count=4)


def test_repeated_windows_by_their_definition():
    windows = torch.arange(5 * 65).view(5, 65)
    repeated = text.repeated_windows(windows, train_length=16)
    for row, period in enumerate((8, 16, 32, 8, 16)):
        assert repeated[row].tolist() == [windows[row, i % period].item() for i in range(65)]
    at_training_length = text.repeated_windows(windows[:, :17], train_length=16)
    assert torch.equal(at_training_length[:, 8:16], windows[:, :8])
    with pytest.raises(ValueError, match="windows must be at least as long as train_length = 16, got 12"):
        text.repeated_windows(windows[:, :13], train_length=16)
