"""Stored results, and answers from them; files that are there whole or not at all, and locks for them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from rope_lessons._checks import near, shown
from rope_lessons._extras import extra

DATA = Path(__file__).parent / "data"  # the stored results and small models of the book


# --- results ---------------------------------------------------------------------------------------------------------


class Table:
    """Rows of a stored result.

    Args:
        rows: dictionaries with the same columns; where a row lacks one, it is None there.

    >>> rows = Table([{"seed": 0, "length": 64, "loss": 1.5}, {"seed": 0, "length": 512, "loss": 2.0},
    ...               {"seed": 1, "length": 64, "loss": 1.0}, {"seed": 1, "length": 512, "loss": 4.0}])
    >>> far = rows.where(length=512)
    >>> far["loss"], far.mean("loss"), far.max("loss")
    ([2.0, 4.0], 3.0, 4.0)
    >>> [row["seed"] for row in far]
    [0, 1]
    >>> {length: found.mean("loss") for length, found in rows.by("length").items()}
    {64: 1.25, 512: 3.0}
    >>> rows.where(length=500)
    Traceback (most recent call last):
        ...
    ValueError: length must be one of 64, 512, got 500
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]):
        given = list(rows)
        self.columns = tuple(dict.fromkeys(column for row in given for column in row))
        self._rows = [{column: row.get(column) for column in self.columns} for row in given]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Table of {len(self)} rows with {', '.join(self.columns)}"

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column, one of each row.

        Raises:
            ValueError: no such column.
        """
        _check_one_of("column", column, self.columns)
        return [row[column] for row in self]

    def where(self, **wanted: Any) -> Table:
        """The rows that have the wanted values.

        Args:
            wanted: by column, a value; or several in a tuple, list, set or range, of which a row has to have one.

        Raises:
            ValueError: no such column, or a value that none of the rows has.
        """
        asked = {column: _several(column, value) for column, value in wanted.items()}
        for column, values in asked.items():
            there = _distinct(self[column])
            for value in values:
                _check_one_of(column, value, there)
        found = Table(row for row in self if all(row[column] in values for column, values in asked.items()))
        for column, values in asked.items():
            for value in values:
                if not any(row[column] == value for row in found):
                    others = ", ".join(f"{name} = {wanted[name]!r}" for name in wanted if name != column)
                    raise ValueError(f"no row has {column} = {value!r} together with {others}")
        return found

    def by(self, column: str) -> dict[Any, Table]:
        """The rows of each value of a column; the values stand as they first come.

        Raises:
            ValueError: no such column.
        """
        return {value: self.where(**{column: value}) for value in _distinct(self[column])}

    def mean(self, column: str) -> float:
        """The mean of a column.

        Raises:
            ValueError: no such column, or it has a value that is no number.
        """
        numbers = self._numbers(column)  # as statistics.fmean, which would import fractions and decimal
        return math.fsum(numbers) / len(numbers)

    def min(self, column: str) -> float:
        """The least value of a column. It raises what :meth:`mean` does."""
        return min(self._numbers(column))

    def max(self, column: str) -> float:
        """The greatest value of a column. It raises what :meth:`mean` does."""
        return max(self._numbers(column))

    def _numbers(self, column: str) -> list[float]:
        values = self[column]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"column must have numbers only, got {column!r} with {shown(value)}")
        return values


class Results(dict[str, Any]):
    """A stored result: the entries of its header, and its tables by name."""

    def __missing__(self, name: str) -> Any:
        _check_one_of("name", name, self)


def results(name: str) -> Results:
    """A result that the book shows.

    Args:
        name: of a file in ``rope_lessons/data``, without its ending.

    Returns:
        What :func:`read_results` gives.

    Raises:
        ValueError: no such result.

    >>> stored = results("radix")
    >>> stored["date"], stored["seeds"]
    ('2026-11-20', [0, 1, 2, 3, 4])
    >>> far = stored["rows"].where(method="ntk-aware", length=512)
    >>> print(f"{far.mean('accuracy'):.1%} ({far.min('accuracy'):.1%} to {far.max('accuracy'):.1%})")
    37.6% (34.3% to 41.1%)
    """
    _check_one_of("name", name, sorted(path.stem for path in DATA.glob("*.json")))
    return read_results(DATA / f"{name}.json")


def read_results(path: Path) -> Results:
    """What :func:`write_results` was given: the entries of the header, and each table as a :class:`Table`.

    Args:
        path: of the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no file of results, or damaged.
    """
    try:
        found = json.loads(path.read_text("utf8"))
        tables = found.pop("tables", {})
        return Results({**found, **{name: _unpacked(**table) for name, table in tables.items()}})
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no file of results, or damaged: {error}") from error


def read_rows(path: Path, name: str, columns: Iterable[str]) -> Table:
    """A table of a file of results, which must have some columns.

    Args:
        path: of the file.
        name: of the table.
        columns: which it must have; others may stand beside them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no file of results, or damaged, or has no such table.
    """
    found, wanted = read_results(path).get(name), list(columns)
    table = found if isinstance(found, Table) else Table([])
    if missing := [column for column in wanted if column not in table.columns]:
        raise ValueError(f"{path} must have a table {name!r} with {', '.join(wanted)}; it lacks {', '.join(missing)}")
    return table


def write_results(path: Path, header: Mapping[str, Any], **tables: Iterable[Mapping[str, Any]]) -> None:
    """Write a file of results, whole or not at all: JSON, with a line for each row.

    Args:
        path: of the file.
        header: where the results come from and what they were measured with: what JSON can hold.
        tables: rows, by the name of their table. What all rows of a table have in common is written once.

    Raises:
        OSError: as :func:`write_whole`.
        ValueError: a table has the name of an entry of the header; or a number is NaN or infinite.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "toy.json"
    ...     write_results(path, {"steps": 100}, rows=[{"seed": 0, "loss": 1.5}, {"seed": 1, "loss": 2.5}])
    ...     stored = read_results(path)
    >>> stored["steps"], stored["rows"].mean("loss")
    (100, 2.0)
    """
    if both := {"tables", *header} & tables.keys() or {"tables"} & header.keys():
        raise ValueError(f"tables and header must have different names, and none be 'tables', got {sorted(both)}")
    packed = ",\n".join(f"  {_json(name)}: {_packed(Table(rows))}" for name, rows in tables.items())
    lines = [f" {_json(name)}: {_json(value)}" for name, value in header.items()]
    content = ",\n".join([*lines, f' "tables": {{\n{packed}\n }}'])
    write_whole(path, lambda unfinished: unfinished.write_text(f"{{\n{content}\n}}\n", "utf8"))


def provenance(device: torch.device | str = "cpu") -> dict[str, str]:
    """When a result is measured, and on what.

    A stored result has this beside its ``script``: the program that wrote it, by the name that it had then.

    Args:
        device: on which it is measured.
    """
    if torch.device(device).type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        hardware = f"{platform.machine()}, {threads} CPU thread{'s' if threads > 1 else ''}"
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
        "hardware": hardware,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _packed(table: Table) -> str:
    """A table as JSON. The values that all rows share stand apart, so that a long table stays small."""
    same = {column: table[column][0] for column in table.columns if len(table) > 1 and _is_shared(table[column])}
    others = [column for column in table.columns if column not in same]
    rows = ",\n".join(f"    {_json([row[column] for column in others])}" for row in table)
    return f'{{\n   "same": {_json(same)},\n   "columns": {_json(others)},\n   "rows": [\n{rows}]}}'


def _is_shared(values: list[Any]) -> bool:
    """Whether all are the same to JSON: 1, 1.0 and True are equal, and are not."""
    first = _json(values[0])
    return all(_json(value) == first for value in values)


def _unpacked(same: Mapping[str, Any], columns: list[str], rows: list[list[Any]]) -> Table:
    return Table({**same, **dict(zip(columns, row, strict=True))} for row in rows)


_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _several(name: str, value: Any) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, tuple | list | set | frozenset | range) else (value,)
    if not values:
        raise ValueError(f"{name} must be a value, or one or more of them, got {value!r}")
    return values


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once, in their order; they may be lists."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _check_one_of(name: str, value: Any, there: Iterable[Any]) -> None:
    choices = list(there)
    if value not in choices:
        hint = near(value, [choice for choice in choices if isinstance(choice, str)])
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices)) or 'nothing'}, got {shown(value)}{hint}"
        )


# --- files -----------------------------------------------------------------------------------------------------------


class Refusal(RuntimeError):
    """A command cannot do what it is asked, and its message says all of it: no traceback is needed."""


class InUseError(Refusal):
    """Files that another process works on."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, ``NAME.unfinished`` beside it; it gets its own when all of it is on the disk.

    What is at the path stays as it is until then, also when the disk is full or the process is killed. An error removes
    the unfinished file; what a killed process left is overwritten by the next one. Processes that write the same file
    at the same time need a lock, :func:`locked`.

    Args:
        path: of the file, in a folder that is there.
        write: writes the file whose path it is given.

    Raises:
        OSError: the file cannot be written, or the disk is full. It names the file, and has the number of the cause.

    Chapter 12 keeps its trainings with it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "numbers.txt"
    ...     write_whole(path, lambda unfinished: unfinished.write_text("1 2 3"))
    ...     path.read_text()
    '1 2 3'
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    with naming(path):
        try:
            write(unfinished)
            flush(unfinished)
            unfinished.replace(path)
            flush(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to be told
                unfinished.unlink(missing_ok=True)
            raise


def tidy(folder: Path) -> None:
    """Remove what processes that were killed have left of :func:`write_whole`.

    Args:
        folder: in which no other process writes.
    """
    for pattern in ("*.unfinished", ".tmp*"):  # safetensors writes under a name of its own first
        for path in folder.glob(pattern):
            if not path.is_dir():
                path.unlink()


def sealed(content: Mapping[str, Any]) -> str:
    """A dictionary as JSON, with a SHA-256 of what it says.

    Args:
        content: what JSON can hold, without the name ``"seal"``.
    """
    return json.dumps({**content, "seal": _seal(content)}, indent=1) + "\n"


def unsealed(text: str | bytes) -> dict[str, Any]:
    """What :func:`sealed` was given.

    Raises:
        ValueError: the text does not say that.
    """
    content = json.loads(text)
    if not isinstance(content, dict) or content.pop("seal", None) != _seal(content):
        raise ValueError("its SHA-256 is not the one that it was written with")
    return content


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write what :func:`sealed` gives, whole or not at all.

    Raises:
        OSError: as :func:`write_whole`.
    """
    write_whole(path, lambda unfinished: unfinished.write_text(sealed(content), "utf8"))


def read_sealed(path: Path) -> dict[str, Any]:
    """What :func:`write_sealed` wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it does not say what was written.
    """
    return unsealed(path.read_bytes())


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the disk name a file: those of writing name none, and safetensors has a kind of its own for them.

    Args:
        path: of the file, as it is to be told.

    Raises:
        OSError: with the number of the cause.
    """
    try:
        yield
    except OSError as error:
        number, reason = error.errno, error.strerror or str(error)
        raise OSError(number or errno.EIO, f"{reason}, so this was not written", str(path)) from error
    except Exception as error:
        told = re.search(r"\(os error (\d+)\)", str(error))
        if type(error).__name__ != "SafetensorError" or told is None:
            raise
        number = int(told[1])
        raise OSError(number, f"{os.strerror(number)}, so this was not written", str(path)) from error


def flush(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows flushes only what it may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, told: str | None = None) -> Iterator[None]:
    """Work as the only process that holds a lock. It ends with the block, or with the process, however that ends.

    Args:
        path: of the lock, a file that stays. Its folder is made if it is not there.
        told: where another process holds it, this is the error; None waits.

    Raises:
        InUseError: another process holds it.

    Chapter 12.
    """
    with extra("lab", "a lock"):
        from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if told is None else 0)
    except Timeout as error:
        raise InUseError(told) from error
    try:
        yield
    finally:
        lock.release()


def check_writable(name: str, path: Path, folder: bool = False) -> None:
    """Find out before hours of work, and not after them, that their result cannot be written. Nothing is made.

    Args:
        name: of the argument that the path comes from.
        path: of a file, which may be there or not.
        folder: the path is that of a folder for files.

    Raises:
        ValueError: there can be no such file, or its folder takes none.
    """
    what = "a folder that can be written to" if folder else "a file that can be written"
    inside = path if folder else path.parent
    try:
        if not folder and path.is_dir():
            raise OSError("it is a folder")
        while not inside.exists():
            inside = inside.parent
        with tempfile.TemporaryFile(dir=inside):
            pass
        with contextlib.suppress(FileNotFoundError):
            path.stat()  # a name can be too long
    except OSError as error:
        raise ValueError(f"{name} must be {what}, got {str(path)!r}: {error}") from error
