"""A file of results that is written again after every piece: who is interrupted goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rope_lessons.stored import Table, provenance, read_results, write_results


class Result:
    """What an experiment has found so far.

    Args:
        path: of the file. What is in it already is kept, and not measured again.
        name: of the experiment.
        settings: what it was measured with: first in the file, and the same as in a file that is there.
        empty: what it looks for, by name, before anything is found: ``[]`` for a table.
        fresh: begin anew, whatever is in the file.

    Raises:
        ValueError: the file is none of this experiment, or of other settings.
    """

    def __init__(
        self, path: Path, name: str, settings: Mapping[str, Any], empty: Mapping[str, Any], fresh: bool = False
    ):
        self.path, self.name, self.written = path, name, False
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))  # as they are read again
        self.found = dict(empty)
        if path.exists() and not fresh:
            self._go_on()

    def _go_on(self) -> None:
        try:
            stored = {
                name: list(value) if isinstance(value, Table) else value
                for name, value in read_results(self.path).items()
            }
            for name in stored.keys() & self.found.keys():
                if type(stored[name]) is not type(self.found[name]):
                    raise ValueError(f"{name} is a {type(stored[name]).__name__}")
                self.found[name] = stored[name]
            if missing := self.settings.keys() - stored.keys():
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
        except ValueError as error:
            raise ValueError(f"{self.path} is no result of this experiment, and stays as it is ({error})") from error
        if other := [name for name, value in self.settings.items() if stored[name] != value]:
            raise ValueError(f"{self.path} was measured with another {', '.join(other)}: --fresh begins it anew")

    def lacks(self, table: str, **labels: Any) -> bool:
        """Whether no row of a table has these labels."""
        return not any(labels.items() <= row.items() for row in self.found[table])

    def add(self, **tables: Iterable[dict[str, Any]]) -> None:
        """Add rows to tables, write the file, and show the last row of each table."""
        for table, rows in tables.items():
            self.found[table].extend(rows)
            last = {name: value for name, value in self.found[table][-1].items() if not isinstance(value, list | dict)}
            print(f"{table}:", ", ".join(f"{name} {value}" for name, value in last.items()), flush=True)
        self.write()

    def set(self, **found: Any) -> None:
        """Keep what is no table, and write the file."""
        self.found |= found
        self.write()

    def write(self) -> None:
        tables = {name: found for name, found in self.found.items() if isinstance(found, list)}
        others = {name: found for name, found in self.found.items() if name not in tables}
        origin = {"script": f"python -m experiments {self.name}", **provenance(), "seeds": self.seeds()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_results(self.path, {**origin, **self.settings, **others}, **tables)
        self.written = True

    def seeds(self) -> list[int]:
        """Of all rows that have one."""
        tables = [found for found in self.found.values() if isinstance(found, list)]
        return sorted({row["seed"] for rows in tables for row in rows if "seed" in row})

    def close(self) -> None:
        """Say what was written."""
        if self.written:
            print(f"written: {self.path}")
        else:
            print(f"all of this is in {self.path} already: --fresh measures it again")
