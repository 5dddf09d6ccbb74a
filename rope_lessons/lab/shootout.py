"""The results table: what is stored, what the sources published, each row's five knobs, and the shipped checkpoints.

``scripts/measure_table.py`` measures the table, ``scripts/ship_table.py`` ships one seed of a few of its models.
Chapter 12.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rope_lessons._checks import check_choice
from rope_lessons.kinds import KINDS
from rope_lessons.lab import evaluation, sizes, training
from rope_lessons.lab.checkpoint import CheckpointError
from rope_lessons.lab.evaluation import OWN, SETS, Evaluation, Trained, cut, score
from rope_lessons.lab.rows import TableRow, hwfa_window
from rope_lessons.lab.text import Corpus, repeated_windows
from rope_lessons.lab.training import Recipe
from rope_lessons.methods import Method
from rope_lessons.schemes import LogN, Scheme
from rope_lessons.stored import DATA, write_whole

PACKAGED = DATA / "table_gau-0.3m.csv"
DOCUMENTS = DATA / "table_documents.json"
SHIPPED_TEXT = DATA / "table_eval_text.json"
FORMAT = "rope_lessons shipped model 1"


# --- the stored table ----------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """One line of the table: a row, a set, a length and a metric. The lines of a row share what it is trained with."""

    row: str
    training: str
    set: str
    length: int
    times: int
    metric: str
    value: float
    low: float
    high: float
    along: tuple[float, ...]
    seeds: int
    documents: int
    predictions: int


def read(path: Path | str = PACKAGED) -> list[Line]:
    """The lines of a table that ``lab.evaluation`` wrote; by default of the one that travels with the package.

    Args:
        path: of the CSV.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file without the columns of a table, or damaged.

    Chapter 12 shows them.
    """
    found = []
    for number, values in enumerate(_lines(path), start=2):
        try:
            found.append(_line(values))
        except (TypeError, ValueError) as error:  # a number that is none, or is not there
            raise ValueError(f"{path} is damaged: line {number}, {error}") from error
    return found


def recipe_of(path: Path | str = PACKAGED) -> dict[str, str]:
    """The columns that are the same in every line, as text: the training, the corpus, hardware and date.

    Args:
        path: of the CSV.
    """
    lines = _lines(path)
    return {name: value for name, value in lines[0].items() if all(line[name] == value for line in lines)}


def _lines(path: Path | str) -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf8") as file:
        lines = list(csv.DictReader(file))
    if missing := [name for name in Line._fields if not lines or name not in lines[0]]:
        raise ValueError(f"{path} must be a table with the columns {', '.join(Line._fields)}; missing: {missing}")
    return lines


def _line(values: dict[str, str]) -> Line:
    kinds: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(("length", "times", "seeds", "documents", "predictions"), int),
        **dict.fromkeys(("value", "low", "high"), float),
        "along": lambda text: tuple(float(part) for part in text.split()),
    }
    return Line(**{name: kinds.get(name, str)(values[name]) for name in Line._fields})


def row_names(lines: Iterable[Line]) -> list[str]:
    """The rows of a table in its order, but for the plan of training itself."""
    return list(dict.fromkeys(line.row for line in lines if line.row != OWN))


def pick(lines: Iterable[Line], row: str, kind: str = SETS[0], times: int = 8, metric: str = "accuracy") -> Line:
    """The line of a row.

    Args:
        lines: of a table.
        row: its name.
        kind: ``"not repeated"``, ``"repeated"`` or ``"passkey"``.
        times: of the training length.
        metric: ``"accuracy"``, ``"loss"``, ``"found"`` or ``"tax"``.

    Raises:
        ValueError: there is none.
    """
    wanted = (row, kind, times, metric)
    for line in lines:
        if (line.row, line.set, line.times, line.metric) == wanted:
            return line
    raise ValueError(f"the table has no line for row {row!r}, {kind}, {times} times the length, {metric}")


# --- by document: differences of two rows --------------------------------------------------------------------------


def document_hits(models: Sequence[Trained], corpus: Corpus, tests: Evaluation, times: int = 8) -> dict[str, Any]:
    """How many tokens of each document every row has right, from what ``lab.evaluation`` has counted.

    Args:
        models: trainings, of one recipe but for row and seed.
        corpus, tests: that they were tested with.
        times: length as a multiple of the training length.

    Returns:
        what :func:`difference` reads: ``{"tokens": [...], "hits": {row: {set: [[...], ...]}}}``, the tokens of each
        document and the hits by seed and document.

    Raises:
        TableError: something is not counted yet.
    """
    hits: dict[str, dict[str, list[list[int]]]] = {}
    tokens: list[int] = []
    for model in sorted(models, key=lambda model: model.recipe.seed):
        for row in evaluation.rows_of(model.recipe):
            if row.name == OWN:
                continue
            counts = evaluation.read_counts(model, row, corpus, tests)
            tokens = [int(value) for value in counts[f"{times} {SETS[0]} tokens"].sum(axis=1)]
            for kind in SETS:
                of_document = [int(value) for value in counts[f"{times} {kind} hits"].sum(axis=1)]
                hits.setdefault(row.name, {}).setdefault(kind, []).append(of_document)
    return {"times": times, "tokens": tokens, "hits": hits}


def difference(
    first: str, second: str, kind: str = SETS[0], stored: Mapping[str, Any] | None = None
) -> tuple[float, float, float]:
    """How much more of the tokens one row has right than another at 8 times the training length, with a 95 % interval.

    Both rows are tested on the same documents, and the interval draws documents and seeds for both together. So what
    makes a document hard for every row drops out, and the interval is much narrower than those of the two accuracies.

    Args:
        first, second: names of rows.
        kind: ``"not repeated"`` or ``"repeated"``.
        stored: as :func:`document_hits` gives it; by default what travels with the package.

    Returns:
        difference, lower end, upper end, as shares.

    Raises:
        KeyError: an unknown row or set.

    Chapter 12.
    """
    stored = json.loads(DOCUMENTS.read_text("utf8")) if stored is None else stored
    sums = np.subtract(stored["hits"][first][kind], stored["hits"][second][kind]).astype(float)
    return evaluation.interval(sums, np.array(stored["tokens"], dtype=float))


# --- the published table -------------------------------------------------------------------------------------------


class Published(NamedTuple):
    """A row of the sources' tables: accuracies in percent, and the row of ours that stands for it.

    ``trained`` is the accuracy at 512 tokens; ``repeated`` and ``natural`` are those at 4096. ``ours`` gives the name
    of our row for a training length, a factor and a number of layers.
    """

    name: str
    article: int
    trained: float
    repeated: float
    natural: float
    ours: Callable[[int, float, int], str]


def published() -> list[Published]:
    """The tables of Su's articles 9 to 15, from 512 to 4096 tokens, each row once.

    The model has about 100 million parameters. The articles print one number each, and neither data nor code was
    published. Windows are turned into shares of the training length. Two rows of article 15, Baseline and Baseline-logn
    with NTK, are left out: the article does not say with which factor, and they equal no row of articles 10 and 11.
    HWFA2 stands for our rows without log n in the full layers; article 14 does not say whether it has it there.

    Source: spaces.ac.cn/archives/9603, 9675, 9706, 9708, 9728, 9731, 9859. Chapter 12.

    >>> rows = {row.name: row for row in published()}
    >>> rows["ReRoPE-w256"].ours(64, 8.0, 4)
    'rerope-w32'
    """
    return [*_conversions(), *_rerope(), *_leaky(), *_others(), *_key_norms()]


def beside_published(lines: Iterable[Line], kind: str, times: int = 8) -> list[tuple[str, float, float]]:
    """Our row, the published accuracy and ours, in percent, for every published row.

    Args:
        lines: of a table of ``gau-0.3m``.
        kind: ``"not repeated"`` or ``"repeated"``.
        times: length as a multiple of the training length.
    """
    lines, recipe = list(lines), training.CONFIGS["gau-0.3m"]
    found = []
    for row in published():
        name = row.ours(recipe.train_length, recipe.factor, recipe.config.layers)
        theirs = row.natural if kind == SETS[0] else row.repeated
        found.append((name, theirs, 100 * pick(lines, name, kind, times).value))
    return found


def _named(name: str) -> Callable[[int, float, int], str]:
    return lambda length, factor, layers: name


def _windowed(pattern: str, window: int) -> Callable[[int, float, int], str]:
    """``pattern`` with the window, which is a share of 512, and the base of the factor."""
    return lambda length, factor, layers: pattern.format(w=window * length // 512, base=f"{10_000 * factor:g}")


def _conversions() -> list[Published]:
    plain, log_n = 49.41, 49.40
    table: list[tuple[str, int, float, float, float, str]] = [
        ("Baseline", 10, plain, 24.17, 23.16, "rope"),
        ("Baseline-logn", 10, log_n, 24.60, 24.02, "rope-logn"),
        ("PI", 10, plain, 15.04, 13.54, "pi"),
        ("PI-logn", 10, log_n, 14.99, 16.51, "pi-logn"),
        ("NTK-old", 10, plain, 51.28, 39.27, "ntk-old"),
        ("NTK-logn-old", 10, log_n, 61.71, 43.75, "ntk-old-logn"),
        ("NTK-fixed", 11, plain, 51.86, 39.61, "ntk-fixed"),
        ("NTK-logn†-fixed", 11, plain, 55.94, 41.11, "ntk-fixed-logn-test"),
        ("NTK-logn-fixed", 11, log_n, 62.85, 44.14, "ntk-fixed-logn"),
        ("NTK-mixed", 11, plain, 53.09, 40.12, "ntk-mixed"),
        ("NTK-logn†-mixed", 11, plain, 59.11, 42.38, "ntk-mixed-logn-test"),
        ("NTK-logn-mixed", 11, log_n, 68.91, 45.41, "ntk-mixed-logn"),
        ("Baseline+YaRN", 15, plain, 80.10, 47.45, "yarn"),
        ("Baseline-logn+YaRN", 15, log_n, 82.57, 46.52, "yarn-logn"),
    ]
    return [
        Published(name, article, trained, repeated, natural, _named(ours))
        for name, article, trained, repeated, natural, ours in table
    ]


def _rerope() -> list[Published]:
    table = {
        64: ((69.39, 78.58, 84.38), (45.19, 47.42, 48.14)),
        128: ((76.11, 82.28, 85.47), (47.82, 48.78, 48.87)),
        256: ((77.90, 82.40, 85.12), (48.48, 48.85, 49.07)),
        384: ((70.72, 76.42, 83.24), (48.15, 48.31, 48.62)),
        512: ((7.09, 7.08, 15.84), (8.25, 8.25, 10.83)),
    }
    scales = (("", "", 49.41), ("-logn†", "-logn-test", 49.41), ("-logn", "-logn", 49.40))
    return [
        Published(
            f"ReRoPE-w{window}{theirs}", 12, trained, repeated, natural, _windowed(f"rerope-w{{w}}{ours}", window)
        )
        for window, both in table.items()
        for (theirs, ours, trained), repeated, natural in zip(scales, *both, strict=True)
    ]


def _leaky() -> list[Published]:
    table = {
        128: {64: (85.29, 48.96), 32: (85.31, 49.03), 16: (85.15, 49.10), 8: (80.00, 48.11)},
        256: {64: (84.60, 49.03), 32: (84.30, 48.97), 16: (83.59, 48.87), 8: (69.80, 45.72)},
    }
    return [
        Published(f"Leaky-w{window}-k{k}-logn", 12, 49.40, *both, _windowed(f"leaky-rerope-w{{w}}-k{k}-logn", window))
        for window, rows in table.items()
        for k, both in rows.items()
    ]


def _hwfa(length: int, factor: float, layers: int) -> str:
    return f"hwfa-w{hwfa_window(length, layers)}"


def _others() -> list[Published]:
    hwfa2 = {
        (32, 1): (49.29, 83.13, 49.34),
        (64, 1): (49.32, 82.41, 49.37),
        (128, 1): (49.21, 80.18, 48.99),
        (256, 1): (49.00, 54.94, 47.64),
        (32, 2): (49.50, 84.09, 49.35),
        (64, 2): (49.46, 84.43, 49.36),
        (128, 2): (49.35, 83.09, 48.97),
        (256, 2): (49.37, 75.24, 48.42),
    }
    inverse = "invleaky-w{w}-logn"
    return [
        Published("HWFA", 9, 48.70, 80.84, 48.15, _hwfa),
        Published("InvLeaky-w128-logn", 13, 49.38, 82.25, 48.32, _windowed(inverse, 128)),
        Published("InvLeaky-w128-b8-logn", 13, 49.62, 81.15, 48.85, _windowed(f"{inverse}-b{{base}}", 128)),
        *(
            Published(f"HWFA2-w{window}-f{full}", 14, *numbers, _windowed(f"hwfa2-w{{w}}-f{full}", window))
            for (window, full), numbers in hwfa2.items()
        ),
    ]


def _key_norms() -> list[Published]:
    """Article 15. Its two tables do not agree on CosA-logn on natural text: 48.95 in the first, 48.39 in the second."""
    table: list[tuple[str, float, float, float, str]] = [
        ("QNA", 49.55, 22.45, 22.18, "qna"),
        ("QNA-logn", 49.42, 19.55, 18.74, "qna-logn"),
        ("KNA", 49.60, 61.08, 47.69, "kna"),
        ("KNA-logn", 49.58, 63.17, 46.40, "kna-logn"),
        ("CosA", 49.73, 58.90, 46.98, "cosa"),
        ("CosA-logn", 49.67, 64.74, 48.95, "cosa-logn"),
        ("QNA+NTK", 49.55, 52.28, 39.88, "qna-ntk-fixed"),
        ("QNA+YaRN", 49.55, 82.53, 47.50, "qna-yarn"),
        ("QNA+ReRoPE", 49.55, 78.22, 47.72, "qna-rerope-w{w}"),
        ("QNA-logn+NTK", 49.42, 57.44, 41.56, "qna-logn-ntk-fixed"),
        ("QNA-logn+YaRN", 49.42, 80.08, 45.16, "qna-logn-yarn"),
        ("QNA-logn+ReRoPE", 49.42, 84.71, 48.31, "qna-logn-rerope-w{w}"),
        ("KNA+NTK", 49.60, 64.44, 43.02, "kna-ntk-fixed"),
        ("KNA+YaRN", 49.60, 84.19, 47.44, "kna-yarn"),
        ("KNA+ReRoPE", 49.60, 77.76, 47.73, "kna-rerope-w{w}"),
        ("KNA-logn+NTK", 49.58, 79.05, 47.43, "kna-logn-ntk-fixed"),
        ("KNA-logn+YaRN", 49.58, 83.95, 47.16, "kna-logn-yarn"),
        ("KNA-logn+ReRoPE", 49.58, 85.48, 48.78, "kna-logn-rerope-w{w}"),
        ("CosA+NTK", 49.73, 62.50, 42.77, "cosa-ntk-fixed"),
        ("CosA+YaRN", 49.73, 83.40, 47.80, "cosa-yarn"),
        ("CosA+ReRoPE", 49.73, 77.82, 47.80, "cosa-rerope-w{w}"),
        ("CosA-logn+NTK", 49.67, 78.97, 47.46, "cosa-logn-ntk-fixed"),
        ("CosA-logn+YaRN", 49.67, 82.28, 45.72, "cosa-logn-yarn"),
        ("CosA-logn+ReRoPE", 49.67, 85.67, 48.39, "cosa-logn-rerope-w{w}"),
    ]
    return [
        Published(name, 15, trained, repeated, natural, _windowed(ours, 128))
        for name, trained, repeated, natural, ours in table
    ]


# --- five knobs in words -------------------------------------------------------------------------------------------

KNOBS = ("frequencies", "distance", "scale", "visible", "positions")
_NORMALIZED = {"k": "unit k", "q": "unit q", "qk": "cosine"}


def knobs(row: TableRow) -> dict[str, str]:
    """The five knobs of a row in a few words each; what training has before an arrow, where the test has another.

    Args:
        row: of a table.

    Returns:
        ``{knob: words}`` for frequencies, distance map, scale, visibility and positions.

    Chapter 12.

    >>> from rope_lessons.lab.rows import rows
    >>> knobs(rows(layers=4, dim=64, train_length=64)["rerope-w32-logn-test"])["distance"]
    'true → 32 at most'
    """
    describe: dict[str, Callable[[Scheme], str]] = {
        "frequencies": _frequencies,
        "distance": _distance,
        "scale": partial(_scale, normalized=row.normalized),
        "visible": _visible,
    }
    found = {}
    for name, words in describe.items():
        phases = [_layers([words(scheme) for scheme in plan]) for plan in (row.method.train, row.method.test)]
        found[name] = " → ".join(dict.fromkeys(phases))
    found["positions"] = _positions(row.method)
    return found


def _layers(words: Sequence[str]) -> str:
    """One word for all layers, or how many layers have which."""
    kinds = list(dict.fromkeys(words))
    if len(kinds) == 1:
        return kinds[0]
    return "; ".join(f"{words.count(kind)} × {kind}" for kind in kinds)


def _frequencies(scheme: Scheme) -> str:
    if scheme.frequencies is None:
        return "none"
    kind, base = scheme.frequencies.kind, dict(scheme.frequencies.options)["base"]
    name = KINDS[kind].label
    return name if base == 10_000 else f"{name}, base {base:g}"


def _distance(scheme: Scheme) -> str:
    if scheme.frequencies is None:
        return "none"
    if scheme.slope == 1:
        return "true"
    if scheme.slope == 0:
        return f"{scheme.window:g} at most"
    step = f"{scheme.slope:g}" if scheme.slope > 1 else f"1/{1 / scheme.slope:g}"
    return f"from {scheme.window:g} in steps of {step}"


def _scale(scheme: Scheme, normalized: str) -> str:
    words = [] if not normalized else [_NORMALIZED[normalized]]
    if normalized == "qk":
        words = [f"{scheme.base_scale:.3g} cos"]
    if scheme.rotary_scale != 1:
        words.append(f"{scheme.rotary_scale**2:.3g}")
    if isinstance(scheme.scale, LogN):
        words.append("log n†" if scheme.scale.clip else "log n")
    return " × ".join(words) or "1"


def _visible(scheme: Scheme) -> str:
    words = "all before" if scheme.visible_window is None else f"last {scheme.visible_window}"
    words += f" and first {scheme.sinks}" if scheme.sinks else ""
    return words + (", ALiBi" if scheme.alibi else "")


def _positions(method: Method) -> str:
    drawn: Any = method.train_positions
    if drawn is None:
        return "0, 1, 2, …"
    if drawn.func.__name__ == "random_positions":
        most = drawn.keywords["max_length"]
        return f"random below {most} → even grid"
    return "random step → 0, 1, 2, …"


# --- shipped models ------------------------------------------------------------------------------------------------


def shipped() -> list[str]:
    """The trainings whose model travels with the package."""
    return sorted(path.stem.removeprefix("table_") for path in DATA.glob("table_*.safetensors"))


def export(path: Path, folder: Path = DATA) -> Path:
    """Ship the model of a checkpoint: weights in bfloat16, and the recipe.

    Args:
        path: of a checkpoint of ``lab.training``.
        folder: where the file goes, ``table_TRAINING.safetensors``.

    Returns:
        the path of the new file.

    Raises:
        CheckpointError: a checkpoint that cannot be used.
    """
    from safetensors.torch import save_file

    _, recipe, found = training.load(path)
    weights = {
        name.removeprefix("model."): tensor.to(torch.bfloat16).contiguous()
        for name, tensor in found.tensors.items()
        if name.startswith("model.")
    }
    target = folder / f"table_{recipe.scheme}.safetensors"
    about = {"format": FORMAT, "recipe": json.dumps(found.recipe, sort_keys=True), "checkpoint": found.sha256}
    write_whole(target, lambda unfinished: save_file(weights, unfinished, metadata=about))
    return target


def load_shipped(name: str, folder: Path = DATA) -> tuple[nn.Module, Recipe]:
    """A shipped model, in float32, and the recipe of its training. Its weights were rounded to bfloat16.

    Args:
        name: of the training, one of :func:`shipped`.
        folder: of the files.

    Raises:
        CheckpointError: no such file, one that is no shipped model, or one of another version of this package.

    Chapter 12.
    """
    from safetensors import SafetensorError, safe_open

    path = folder / f"table_{name}.safetensors"
    if not path.exists():
        there = ", ".join(sorted(file.stem.removeprefix("table_") for file in folder.glob("table_*.safetensors")))
        raise CheckpointError(f"no model is shipped for {name!r}; there are {there or 'none'}")
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is damaged, or no safetensors file: {error}") from error
    if about.get("format") != FORMAT:
        raise CheckpointError(f"{path} is foreign: its format is {about.get('format')!r}, not {FORMAT!r}")
    try:
        made_for = json.loads(about["recipe"])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} has no recipe: {error!r}") from error
    recipe = training.recipe_from(made_for, path)
    model = sizes.build(recipe.config, recipe.seed, recipe.row.method.train)
    try:
        model.load_state_dict({key: value.float() for key, value in weights.items()})
    except RuntimeError as error:
        told = " ".join(str(error).split())  # it has lines
        raise CheckpointError(f"{path} does not hold the weights of its recipe: {told}") from error
    return model.eval(), recipe


def retest(model: nn.Module, recipe: Recipe, row: str, windows: Tensor, times: int = 8) -> dict[str, Tensor]:
    """Test a model with a row of the table again.

    Args:
        model, recipe: as :func:`load_shipped` gives them.
        row: one that the model serves.
        windows: int64 ``(windows, longest + 1)``, as the table's test text.
        times: length of the pieces as a multiple of the training length.

    Returns:
        the share of right tokens of each window, float64 ``(windows,)``, for both sets.

    Raises:
        ValueError: a row of another training.

    Chapter 12.
    """
    known = [name for name, other in recipe.rows.items() if other.training == recipe.row.training]
    check_choice("row", row, known)
    natural = cut(windows, times * recipe.train_length)
    found = {}
    for kind, tokens in zip(SETS, (natural, repeated_windows(natural, recipe.train_length)), strict=True):
        hits, _ = score(model, recipe.rows[row], tokens)
        found[kind] = hits.view(len(windows), -1).mean(dim=1)
    return found


def export_text(
    path: Path, corpus: Corpus, windows: Tensor, accuracies: Mapping[str, Mapping[str, float]], licence: str
) -> None:
    """Ship a part of the test text, with what seed 0 has on it.

    Args:
        path: of the file.
        corpus: whose text it is.
        windows: int64 ``(windows, length + 1)``.
        accuracies: ``{row: {set: accuracy}}``, of the weights as they were trained.
        licence: of the text.
    """
    rounded = {row: {kind: round(value, 6) for kind, value in both.items()} for row, both in accuracies.items()}
    stored = {
        "script": "scripts/ship_table.py",
        "licence": licence,
        "corpus": corpus.about["name"],
        "corpus_sha256": corpus.about["sha256"],
        "accuracies": rounded,
        "windows": [bytes(window).decode("latin-1") for window in windows.tolist()],
    }
    content = json.dumps(stored, indent=1, ensure_ascii=False) + "\n"
    write_whole(path, lambda unfinished: unfinished.write_text(content, "utf8"))


def shipped_windows(path: Path = SHIPPED_TEXT) -> Tensor:
    """The shipped part of the table's test text, int64 ``(windows, length + 1)``: each window of a document of its own.

    Args:
        path: of the file that ``scripts/ship_table.py`` wrote.

    Chapter 12.
    """
    stored = json.loads(path.read_text("utf8"))
    return torch.tensor([list(window.encode("latin-1")) for window in stored["windows"]])


def stored_accuracies(path: Path = SHIPPED_TEXT) -> dict[str, dict[str, float]]:
    """What seed 0 had on the shipped windows at 8 times the training length, before its weights were rounded.

    Args:
        path: as for :func:`shipped_windows`.

    Returns:
        ``{row: {set: accuracy}}``.
    """
    accuracies: dict[str, dict[str, float]] = json.loads(path.read_text("utf8"))["accuracies"]
    return accuracies
