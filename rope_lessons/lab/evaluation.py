"""Testing trained models: every row of the table, at the training length and beyond, with confidence intervals.

What is counted for one model and one row is kept beside its checkpoint, so that an interrupted table goes on where it
stopped. The CSV is made from these counts. They can be packed into a small file without the weights, so that seeds of
several machines come into one table. Chapter 12.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import platform
import re
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_lessons._checks import check_count
from rope_lessons.lab import checkpoint, sizes, training
from rope_lessons.lab.rows import TableRow
from rope_lessons.lab.text import Corpus, natural_windows, repeated_windows
from rope_lessons.lab.training import DTYPES, Recipe
from rope_lessons.stored import read_sealed, sealed, unsealed, write_sealed, write_whole

SETS = ("not repeated", "repeated")
BINS = 16  # of positions: the accuracy against position has this many points at every length
ABOUT = "trained.json"  # in the folder of a training: what the table says of it, once its weights are gone too
LARGEST = 2**28  # bytes of counts in a file: those of a seed are a few millions
CONTENTS = "contents.json"  # in a file of packed counts: the SHA-256 of every other file
PACKED = re.compile(rf"([^/\\:]+/)+({ABOUT}|tests/[^/\\:]+\.npz)")  # names in a file of packed counts
OWN = "as trained"  # the plan of training itself, at the training length: what the tax is counted from
NEEDLE, QUESTION, DIGITS = '\nkey = "{}"\n', '\nkey = "{}', 5


class TableError(RuntimeError):
    """Models that cannot be put into one table."""


@dataclass(frozen=True)
class Evaluation:
    """What a row is tested with.

    Args:
        factors: lengths, as multiples of the training length.
        windows: pieces of held-out text, of the longest length each.
        depths: where the needle of the passkey test stands: 0 at the begin of the text, 1 before the question.

    Raises:
        TypeError, ValueError: values out of range.
    """

    factors: tuple[int, ...] = (1, 2, 4, 8, 16)
    windows: int = 64
    depths: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)

    def __post_init__(self) -> None:
        check_count("windows", self.windows, least=1)
        for factor in self.factors:
            check_count("factors", factor, 1, training.MOST, "more is no length")
        if not self.factors or self.factors[0] != 1 or any(self.factors[-1] % factor for factor in self.factors):
            raise ValueError(f"factors must begin with 1 and divide the last one, got {self.factors}")
        if not all(0 <= depth <= 1 for depth in self.depths):
            raise ValueError(f"depths must be from 0 to 1, got {self.depths}")


# --- what is measured ----------------------------------------------------------------------------------------------


@torch.no_grad()
def score(model: nn.Module, row: TableRow, tokens: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Teacher-forced prediction of each next token with the test plan of a row.

    Args:
        model: a language model of the lab.
        row: of its table.
        tokens: int64 ``(windows, length + 1)``, on the device of the model.
        dtype: of the products.

    Returns:
        hits (has the right token the largest score?) and losses in nats, both float64 ``(windows, length)``.

    Chapter 12.
    """
    length = tokens.shape[1] - 1
    draw = row.method.test_positions
    positions = None if draw is None else draw(length, device=tokens.device)
    hits, losses = [], []
    for some in tokens.split(max(1, 2**15 // length)):  # a few at a time: long windows take memory
        with torch.autocast(tokens.device.type, dtype=dtype, enabled=dtype != torch.float32):
            scores = model(some[:, :-1], row.method.test, positions=positions, attend=row.attend)
        hits.append(scores.argmax(dim=-1) == some[:, 1:])
        losses.append(F.cross_entropy(scores.float().transpose(1, 2), some[:, 1:], reduction="none"))
    return torch.cat(hits).double(), torch.cat(losses).double()


def cut(windows: Tensor, length: int) -> Tensor:
    """Windows ``(windows, longest + 1)`` in pieces ``(windows · longest / length, length + 1)``, each with the token
    after it. So the same tokens are predicted at every length; what changes is how much comes before them.

    >>> cut(torch.arange(5).unsqueeze(0), length=2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    return windows.unfold(1, length + 1, length).flatten(0, 1)


def passkey_windows(windows: Tensor, depth: float) -> Tensor:
    """Text with a needle, ``key = "48213"`` on a line of its own, and at its end the question: the same line again.

    Args:
        windows: int64 ``(windows, length + 1)``.
        depth: of the needle: 0 at the begin of the text, 1 right before the question.

    Returns:
        like ``windows``. The last five tokens are the digits: what is before them has all that is needed.

    Raises:
        ValueError: windows that are too short for both lines.

    >>> window = torch.full((1, 33), ord("."))
    >>> bytes(passkey_windows(window, depth=0.5)[0].tolist()).decode().splitlines()
    ['..', 'key = "43784"', '...', 'key = "43784']
    """
    found, size = windows.clone(), windows.shape[1]
    digits = np.random.Generator(np.random.Philox(key=1)).integers(10, size=(len(windows), DIGITS))
    texts = ["".join(map(str, row)) for row in digits]
    needles = torch.tensor([list(NEEDLE.format(text).encode()) for text in texts], device=windows.device)
    questions = torch.tensor([list(QUESTION.format(text).encode()) for text in texts], device=windows.device)
    room = size - needles.shape[1] - questions.shape[1]
    if room < 0:
        raise ValueError(f"windows must have at least {size - room} tokens for needle and question, got {size}")
    begin = round(depth * room)
    found[:, begin : begin + needles.shape[1]] = needles
    found[:, size - questions.shape[1] :] = questions
    return found


Counts = dict[str, np.ndarray]


def count(
    model: nn.Module,
    row: TableRow,
    corpus: Corpus,
    train_length: int,
    tests: Evaluation,
    dtype: torch.dtype = torch.float32,
) -> Counts:
    """All counts of one model with one row, by document of the test text. The plan of training is tested at the
    training length alone, on the same tokens as the others.

    Returns:
        for each factor and each set of ``SETS``, ``"FACTOR SET hits"`` and ``"FACTOR SET losses"``: sums, float64
        ``(documents, BINS)``, and ``"FACTOR SET tokens"``: of how many predictions each is the sum; for each factor and
        depth, ``"FACTOR DEPTH found"`` (all digits right) and ``"FACTOR DEPTH tokens"`` of shape ``(documents, 1)``.

    Chapter 12.
    """
    longest = train_length * tests.factors[-1]
    windows, documents = natural_windows(corpus, longest, tests.windows)
    windows = windows.to(next(model.parameters()).device)
    _, document = documents.unique(return_inverse=True)
    found: Counts = {}

    def add(name: str, kind: str, values: Tensor, of: Tensor) -> None:
        """Sums of ``(pieces, positions)`` by document and, in equal parts of the positions, by bin."""
        bins = values.unflatten(1, (min(BINS, values.shape[1]), -1)).sum(dim=2).cpu()
        sums = torch.zeros(int(document.max()) + 1, bins.shape[1], dtype=torch.float64)
        found[f"{name} {kind}"] = sums.index_add(0, of, bins).numpy()

    for factor in _factors(row, tests):
        length = factor * train_length
        natural = cut(windows, length)
        of = document.repeat_interleave(len(natural) // len(windows))
        for name, tokens in zip(SETS, (natural, repeated_windows(natural, train_length)), strict=True):
            hits, losses = score(model, row, tokens, dtype)
            for kind, values in (("hits", hits), ("losses", losses), ("tokens", torch.ones_like(hits))):
                add(f"{factor} {name}", kind, values, of)
        for depth in tests.depths:
            hits, _ = score(model, row, passkey_windows(windows[:, : length + 1], depth), dtype)
            right = hits[:, -DIGITS:].all(dim=1, keepdim=True).double()
            for kind, values in (("found", right), ("tokens", torch.ones_like(right))):
                add(f"{factor} depth {depth:g}", kind, values, document)
    return found


def _factors(row: TableRow, tests: Evaluation) -> tuple[int, ...]:
    return (1,) if row.name == OWN else tests.factors


def interval(sums: np.ndarray, counts: np.ndarray, draws: int = 2000) -> tuple[float, float, float]:
    """A mean and its 95 % interval by the bootstrap: seeds and documents are both drawn again, with replacement.

    With one seed the interval is over documents alone. With few seeds it is too narrow: five drawn again from five have
    a standard deviation that is a tenth too small.

    Args:
        sums: ``(seeds, documents)``.
        counts: ``(documents,)``, of how many values each is the sum.
        draws: how often.

    Returns:
        mean, lower end, upper end.

    >>> interval(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([4.0, 4.0]))[0]
    0.5
    """
    seeds = len(sums)
    of_seed, of_document = _drawn(*sums.shape, draws)
    drawn = ((of_seed @ sums) * of_document).sum(axis=1) / (seeds * (of_document @ counts))
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(sums.sum() / (seeds * counts.sum())), float(low), float(high)


@cache
def _drawn(seeds: int, documents: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """How often each seed and each document is drawn, ``(draws, seeds)`` and ``(draws, documents)``."""
    random = np.random.Generator(np.random.Philox(key=2))
    each = [random.multinomial(number, np.full(number, 1 / number), size=draws) for number in (seeds, documents)]
    return each[0], each[1]


# --- one table for many models -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A finished training: its folder and its checkpoint."""

    folder: Path
    recipe: Recipe
    sha256: str
    corpus: str

    @property
    def group(self) -> Recipe:
        """Models that differ in nothing but the seed stand in one line."""
        return replace(self.recipe, seed=0)


def find(places: Iterable[Path]) -> list[Trained]:
    """The finished trainings in some folders and the folders in them, also those that :func:`unpack` put there.

    Raises:
        TableError: a place without one; a training that is not finished, or that is there twice.
        CheckpointError: a checkpoint that cannot be used.
    """
    found: dict[Path, Trained] = {}
    for place in places:
        with_weights = {path.parent for path in place.rglob("step-*.safetensors") if checkpoint.stored(path.parent)}
        folders = sorted(with_weights | {path.parent for path in place.rglob(ABOUT)})
        if not folders:
            raise TableError(f"{place} must hold a training, but there is no checkpoint in it")
        found.update({folder.resolve(): _trained(folder) for folder in folders if folder.resolve() not in found})
    trainings: dict[Recipe, Trained] = {}
    for model in found.values():
        if (other := trainings.setdefault(model.recipe, model)) is not model:
            raise TableError(f"{other.folder} and {model.folder} hold the same training: its seed would count twice")
    return list(found.values())


def _trained(folder: Path) -> Trained:
    if checkpoint.stored(folder):
        _, recipe, stored = training.load(checkpoint.stored(folder)[-1])
        if stored.step < recipe.steps:
            raise TableError(f"{folder} is not finished: step {stored.step} of {recipe.steps}. Train on first")
        return Trained(folder, recipe, stored.sha256, stored.recipe["corpus"])
    try:
        about = _about(folder)
    except ValueError as error:
        raise TableError(f"{error}. There are no weights beside it: delete {folder}") from error
    recipe = training.recipe_from(about["recipe"], folder / ABOUT)
    return Trained(folder, recipe, about["sha256"], about["recipe"]["corpus"])


def _about(folder: Path) -> dict[str, Any]:
    """What is known of a tested model.

    Raises:
        FileNotFoundError: it is not tested.
        ValueError: a damaged file.
    """
    try:
        about = read_sealed(folder / ABOUT)
        if missing := {"recipe", "sha256", "tested"} - about.keys():
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / ABOUT} is damaged: {error}") from error
    return about


def own_row(row: TableRow) -> TableRow:
    """The plan of training as a row."""
    return TableRow(OWN, replace(row.method, test=row.method.train, test_positions=None), row.normalized)


def rows_of(recipe: Recipe, wanted: Sequence[str] | None = None) -> list[TableRow]:
    """The rows that a model is tested with, the plan of its training first.

    Args:
        recipe: of the model.
        wanted: names of rows; all if None.
    """
    shared = [row for row in recipe.rows.values() if row.training == recipe.row.training]
    kept = [row for row in shared if wanted is None or row.name in wanted]
    return [own_row(shared[0]), *kept] if kept else []


def count_all(
    models: Sequence[Trained],
    corpus: Corpus,
    tests: Evaluation,
    wanted: Sequence[str] | None = None,
    device: torch.device | str = "cpu",
    minutes: float = math.inf,
    progress: Callable[[Any], Any] = lambda jobs: jobs,
    say: Callable[[str], None] = print,
) -> bool:
    """Count what has not been counted yet, and keep it beside the checkpoints.

    Args:
        models: trainings.
        corpus: with the held-out text; the one that the models were trained on.
        tests: what to test with.
        wanted: names of rows; all if None.
        device: where to test.
        minutes: after which to stop; at least 0.
        progress: wraps the list of jobs, as ``tqdm`` does.
        say: takes a message about each file that is damaged, and so counted again.

    Returns:
        whether all is counted.

    Raises:
        TypeError, ValueError: minutes out of range.
        TableError: a model of another corpus, which may have seen the test text; an unknown row; something that is not
            counted, of a model whose weights are not here.
        CorpusError: no document is as long as the longest test.
        InUseError: another process trains or tests one of the models.
        OSError: the disk is full.

    Chapter 12.
    """
    training.check_minutes(minutes)
    end = time.monotonic() + 60 * minutes
    for model in models:
        if model.corpus != corpus.about["sha256"]:
            raise TableError(
                f"{model.folder} was trained on another corpus (SHA-256 {model.corpus[:12]}…) than the given one "
                f"({corpus.about['sha256'][:12]}…): it may have seen the test text"
            )
    _check_known(models, wanted)
    jobs = [
        (model, row) for model in models for row in _uncounted(model, rows_of(model.recipe, wanted), corpus, tests, say)
    ]
    if without := [(model, row) for model, row in jobs if not checkpoint.stored(model.folder)]:
        model, row = without[0]
        raise TableError(f"{model.folder} is not tested with {row.name!r} yet, and its weights are not here")
    for length in {model.recipe.train_length for model, _ in jobs}:
        natural_windows(corpus, length * tests.factors[-1], 1)  # is there a document of that length?
    with contextlib.ExitStack() as held:
        for folder in {model.folder: None for model, _ in jobs}:
            held.enter_context(training.only_one(folder))
        loaded: tuple[Trained, nn.Module] | None = None
        for model, row in progress(jobs):
            if time.monotonic() > end:
                return False
            if loaded is None or loaded[0] != model:
                loaded = model, training.load(checkpoint.stored(model.folder)[-1], device)[0]
                identity = training.identity(model.recipe, model.corpus)
                about = {"recipe": identity, "sha256": model.sha256, "tested": _where()}
                write_sealed(model.folder / ABOUT, about)  # first: whoever is interrupted from here on comes back
            recipe = model.recipe
            counts = count(loaded[1], row, corpus, recipe.train_length, tests, DTYPES[recipe.dtype])
            _keep(_path(model, row), counts, _key(model, row, corpus, tests))
    return True


def check_rows(models: Sequence[Trained], wanted: Sequence[str] | None) -> None:
    """Refuse rows that cannot stand in the table of some models.

    Raises:
        TableError: an unknown row, or one that none of the models serves.
    """
    _check_known(models, wanted)
    served = {row.name for model in models for row in rows_of(model.recipe, wanted)}
    if missing := sorted(set(wanted or ()) - served):
        raise TableError(f"rows must be ones that the given trainings serve; none serves {', '.join(missing)}")


def _check_known(models: Sequence[Trained], wanted: Sequence[str] | None) -> None:
    known = {name for model in models for name in model.recipe.rows}
    if unknown := sorted(set(wanted or ()) - known):
        raise TableError(f"rows must be among those of the table, got {', '.join(unknown)}")


def _where() -> dict[str, str]:
    """Where and when something is tested."""
    import rope_lessons

    threads = torch.get_num_threads()
    cpu = f"{platform.machine()}, {threads} CPU thread{'s' if threads > 1 else ''}"
    return {
        "rope_lessons": rope_lessons.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu,
        "date": date.today().isoformat(),
    }


def _path(model: Trained, row: TableRow) -> Path:
    return model.folder / "tests" / f"{row.name}.npz"


def _key(model: Trained, row: TableRow, corpus: Corpus, tests: Evaluation) -> str:
    """What the counts depend on."""
    drawn = row.method.test_positions
    parts = {
        "checkpoint": model.sha256,
        "corpus": corpus.about["sha256"],
        "plan": repr(row.method.test),
        "positions": None if drawn is None else repr(drawn.keywords),  # type: ignore[attr-defined]
        "normalized": row.normalized,
        "tests": asdict(tests),
        "bins": BINS,
    }
    return json.dumps(parts, sort_keys=True)


def _uncounted(
    model: Trained, rows: list[TableRow], corpus: Corpus, tests: Evaluation, say: Callable[[str], None]
) -> list[TableRow]:
    """The rows that are to be counted: those that are not yet, and what is damaged, which is told."""
    try:
        _about(model.folder)
    except FileNotFoundError:
        return rows
    except ValueError as error:
        say(f"{error}. All rows are counted again")
        return rows
    found = []
    for row in rows:
        try:
            if _stored(_path(model, row), _key(model, row, corpus, tests)) is None:
                found.append(row)
        except FileNotFoundError:
            found.append(row)
        except ValueError as error:
            say(f"{error}. The row is counted again")
            found.append(row)
    return found


def _stored(path: Path, key: str) -> Counts | None:
    """What is counted, or None if it was counted of something else.

    Raises:
        FileNotFoundError: it is not counted.
        ValueError: a damaged file.
    """
    try:
        files = _members(path).items()
        found = {name.removesuffix(".npy"): np.load(io.BytesIO(content)) for name, content in files}
        of, seal = str(found.pop("key")), str(found.pop("seal"))
        if seal != _seal(of, found):
            raise ValueError("its SHA-256 is not the one that it was written with")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return found if of == key else None


def _seal(key: str, counts: Counts) -> str:
    """A SHA-256 of counts, for a zip file that has lost some of its files may still be one."""
    found = hashlib.sha256(key.encode())
    for name in sorted(counts):
        found.update(f"{name} {counts[name].dtype} {counts[name].shape}".encode() + counts[name].tobytes())
    return found.hexdigest()


def _members(path: Path) -> dict[str, bytes]:
    """The files in a zip file, by name, if they are not too much. Zip files have checksums, which are compared.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or too large.
    """
    try:
        with zipfile.ZipFile(path) as file:
            if (size := sum(entry.file_size for entry in file.infolist())) > LARGEST:
                raise ValueError(f"it has {size:,} bytes, more than {LARGEST:,}")
            names = file.namelist()
            if len(set(names)) < len(names):
                raise ValueError("it has a name twice")
            return {name: file.read(name) for name in names}  # never more bytes than it says
    except OSError:
        raise
    except Exception as error:  # zipfile and its codecs have a dozen kinds of them
        raise ValueError(str(error)) from error


def _keep(path: Path, counts: Counts, key: str) -> None:
    def write(unfinished: Path) -> None:
        contents: dict[str, Any] = {"key": np.array(key), "seal": np.array(_seal(key, counts)), **counts}
        with unfinished.open("wb") as file:
            np.savez_compressed(file, **contents)

    path.parent.mkdir(exist_ok=True)
    write_whole(path, write)


# --- counts without weights ----------------------------------------------------------------------------------------


def pack(root: Path, models: Iterable[Trained], path: Path) -> None:
    """Put what is counted of some models into one zip file, without their weights.

    Args:
        root: a folder that holds the folders of all of them; the names in the file begin there.
        models: trainings that :func:`count_all` has tested.
        path: of the file.

    Chapter 12.
    """

    found: dict[str, bytes] = {}
    for model in models:
        for file in (*sorted(model.folder.glob("tests/*.npz")), model.folder / ABOUT):
            found[file.relative_to(root).as_posix()] = file.read_bytes()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}
    found[CONTENTS] = sealed(digests).encode()

    def write(unfinished: Path) -> None:
        with zipfile.ZipFile(unfinished, "w") as file:
            for name, content in found.items():
                file.writestr(zipfile.ZipInfo(name), content)  # always with the same date: the same file

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)


def unpack(path: Path, root: Path) -> None:
    """Put what :func:`pack` packed into folders again. A training that is there already is left as it is.

    Args:
        path: of the file.
        root: the folder where the names in the file begin.

    Raises:
        TableError: no such file, or one of another kind; more bytes than counts of a seed can have; a name that leads
            out of the folder; other counts in the place of these. Nothing is written then.
        OSError: the disk is full.

    Chapter 12.
    """
    contents = _unpacked(path)
    there = {PurePosixPath(name).parent for name in contents if name.endswith(ABOUT) and _is_there(root / name)}
    new = {root / name: content for name, content in contents.items() if not there & set(PurePosixPath(name).parents)}
    for target, content in new.items():
        if not target.resolve().is_relative_to(root.resolve()):
            raise TableError(f"{path} must be a file of packed counts: {str(target)!r} would be outside of {root}")
        if target.exists() and (target.is_dir() or target.read_bytes() != content):
            raise TableError(f"{target} is there already, and is not what {path} has for it. Delete it first")
    for target, content in new.items():  # ABOUT comes after the counts: an interrupted call is made good by the next
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, partial(Path.write_bytes, data=content))


def _unpacked(path: Path) -> dict[str, bytes]:
    """The files in a packed file, by name."""
    try:
        found = _members(path)
        digests = unsealed(found.pop(CONTENTS, b"{}"))
        if digests != {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}:
            raise ValueError("its files are not those that were packed")
        for name in found:
            if not PACKED.fullmatch(name) or ".." in name.split("/"):
                raise ValueError(f"it has {name!r}")
    except (OSError, ValueError) as error:
        raise TableError(f"{path} must be a file of packed counts: {error}") from error
    return found


def _is_there(about: Path) -> bool:
    return bool(checkpoint.stored(about.parent)) or about.exists()


# --- the CSV -------------------------------------------------------------------------------------------------------


def records(
    models: Sequence[Trained],
    corpus: Corpus,
    tests: Evaluation,
    wanted: Sequence[str] | None = None,
    script: str = "python -m rope_lessons.lab table",
) -> Iterator[dict[str, Any]]:
    """The lines of the CSV, from what :func:`count_all` has counted.

    The metrics are ``accuracy`` and ``loss`` in nats per token; ``found``, the share of passkeys with all digits right;
    and ``tax``, what a method costs inside the training length: the accuracy with the plan of training less that with
    the plan of test. ``along`` has the means along the positions, a sixteenth of the length at a time, and for passkeys
    along the depths.

    Args:
        models, corpus, tests, wanted: as for :func:`count_all`.
        script: what made the table, for its provenance.

    Raises:
        TableError: something is not counted yet, or damaged; a row that none of the models serves.
    """
    check_rows(models, wanted)
    groups: dict[Recipe, list[Trained]] = {}
    for model in models:
        groups.setdefault(model.group, []).append(model)
    for group, unsorted in groups.items():
        members = sorted(unsorted, key=lambda model: model.recipe.seed)
        about = {"script": script, **_provenance(group, members, corpus, tests)}
        own: list[Counts] = []
        for row in rows_of(group, wanted):
            counts = [read_counts(model, row, corpus, tests) for model in members]
            own = counts if row.name == OWN else own
            for values in _values(row, counts, own, group.train_length, tests):
                yield {"size": group.size, "row": row.name, "training": group.scheme, **values, **about}


def read_counts(model: Trained, row: TableRow, corpus: Corpus, tests: Evaluation) -> Counts:
    """What :func:`count_all` has kept of a model and a row.

    Raises:
        TableError: it is not counted yet, or the file is damaged.
    """
    try:
        found = _stored(_path(model, row), _key(model, row, corpus, tests))
    except FileNotFoundError:
        found = None
    except ValueError as error:
        raise TableError(f"{error}. Test {model.folder} again") from error
    if found is None:
        raise TableError(f"{model.folder} is not tested with {row.name!r} yet")
    return found


def _values(
    row: TableRow, counts: Sequence[Counts], own: Sequence[Counts], train_length: int, tests: Evaluation
) -> Iterator[dict[str, Any]]:
    """The lines of one row: where, what, mean and interval, and the means along the positions or the depths."""

    def line(where: tuple[str, int, str], sums: np.ndarray, number: np.ndarray) -> dict[str, Any]:
        """From sums ``(seeds, documents, parts)`` and how many each is of, ``(documents, parts)``."""
        kind, factor, metric = where
        value, low, high = interval(sums.sum(axis=2), number.sum(axis=1))
        parts = sums.sum(axis=(0, 1)) / (len(sums) * number.sum(axis=0))
        return {
            "set": kind, "length": factor * train_length, "times": factor, "metric": metric,
            "value": f"{value:.6f}", "low": f"{low:.6f}", "high": f"{high:.6f}",
            "along": " ".join(f"{part:.4f}" for part in parts),
            "seeds": len(sums), "documents": len(number), "predictions": int(number.sum()),
        }  # fmt: skip

    def all_of(name: str, of: Sequence[Counts] = counts) -> np.ndarray:
        return np.stack([one[name] for one in of])  # (seeds, documents, parts)

    for factor in _factors(row, tests):
        for kind in SETS:
            tokens = counts[0][f"{factor} {kind} tokens"]
            yield line((kind, factor, "accuracy"), all_of(f"{factor} {kind} hits"), tokens)
            yield line((kind, factor, "loss"), all_of(f"{factor} {kind} losses"), tokens)
        names = [f"{factor} depth {depth:g}" for depth in tests.depths]
        if names:
            found = np.concatenate([all_of(f"{name} found") for name in names], axis=2)
            asked = np.concatenate([counts[0][f"{name} tokens"] for name in names], axis=1)
            yield line(("passkey", factor, "found"), found, asked)
    if row.name != OWN:
        kind = f"1 {SETS[0]}"
        paid = all_of(f"{kind} hits", own) - all_of(f"{kind} hits")
        yield line((SETS[0], 1, "tax"), paid, counts[0][f"{kind} tokens"])


def _provenance(group: Recipe, members: Sequence[Trained], corpus: Corpus, tests: Evaluation) -> dict[str, Any]:
    recipe = {name: value for name, value in asdict(group).items() if name not in ("size", "scheme", "seed")}
    tested = [_tested(model) for model in members]
    return {
        "parameters": sizes.parameters(group.config),
        **recipe,
        "windows": tests.windows,
        "depths": " ".join(f"{depth:g}" for depth in tests.depths),
        "seed_list": " ".join(str(model.recipe.seed) for model in members),
        "checkpoints": " ".join(model.sha256[:12] for model in members),
        "corpus": corpus.about["name"],
        "corpus_sha256": corpus.about["sha256"],
        **{name: " / ".join(sorted({where[name] for where in tested})) for name in tested[0]},  # of several machines
    }


def _tested(model: Trained) -> dict[str, str]:
    try:
        where: dict[str, str] = _about(model.folder)["tested"]
    except FileNotFoundError as error:
        raise TableError(f"{model.folder} is not tested yet") from error
    except ValueError as error:
        raise TableError(f"{error}. Test {model.folder} again") from error
    return where


def write_csv(lines: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write the table; the number of its lines."""
    found = list(lines)
    if not found:
        raise TableError("there is no line to write: no row of the table is among those that were tested")

    def write(unfinished: Path) -> None:
        with unfinished.open("w", newline="", encoding="utf8") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows(found)

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, write)
    return len(found)
