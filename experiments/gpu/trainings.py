"""The articles' table: train at 512 tokens, test every row up to 8192, in one step; only what was counted is kept."""

from __future__ import annotations

import argparse
import shutil
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from experiments import table
from experiments.gpu.step import Found, OutOfTime, Row, Setting
from experiments.packed import pack
from rope_lessons.lab import text, training
from rope_lessons.lab.table import finished, summary
from rope_lessons.lab.table.finished import Trained
from rope_lessons.lab.training import Recipe
from rope_lessons.stored import locked

NEEDS = ("tqdm", "filelock", "safetensors")
SCRIPT = "python -m experiments.gpu"
MOST_TEXT = 400 * 2**20  # bytes of the packages' Python files
ROWS = ("rope", "rope-logn", "invleaky-w128-logn", "hwfa-w32", "hwfa2-w64-f1")  # of 512 tokens and 12 layers
SMALL_ROWS = ("rope", "rope-logn", "invleaky-w16-logn", "hwfa-w16", "hwfa2-w8-f1")  # of 64 tokens and 4 layers
LARGEST_ROWS = ("rope", "rope-logn", "invleaky-w128-logn", "hwfa-w16", "hwfa2-w64-f1")  # of 512 tokens and 24 layers

# A third of the whole training, 98 million tokens, so that five of them fit into half an hour of an H200: an estimate.
STEPS = {"gau-25m": 1500, "gau-87m": 1000}
SIZES = ("gau-25m", "gau-0.3m", "gau-87m")
WINDOWS = 8  # pieces of the test text


def recipe_of(setting: Setting, size: str, scheme: str, seed: int) -> Recipe:
    """The training of a size, shortened; a few steps of the smallest where it is only tried."""
    if setting.scale != "full":
        tiny = replace(training.CONFIGS["gau-0.3m"], steps=2, batch=2, warmup=1, train_length=32)
        same = [name for name in tiny.rows if name.partition("-")[0] == scheme.partition("-")[0]]  # of other windows
        return replace(tiny, scheme=scheme if scheme in tiny.rows else same[0], seed=seed)
    recipe = training.CONFIGS[size]
    return replace(recipe, steps=STEPS.get(size, recipe.steps), scheme=scheme, seed=seed)


def one(setting: Setting, size: str, scheme: str, seed: int) -> Found:
    """Train, measure, test all rows that the training serves, pack the counts.

    Raises:
        OutOfTime: in the middle. The same step goes on from the checkpoint, on this machine.
    """
    recipe = recipe_of(setting, size, scheme, seed)
    options = argparse.Namespace(
        device=setting.device.type, corpus=packages(setting), cache=setting.work / "text", models=setting.work,
        config=f"{size}-{setting.scale}", compile=setting.device.type == "cuda",
        windows=setting.by_scale(WINDOWS, 2, 1), rows=None if setting.scale == "full" else [recipe.scheme],
    )  # fmt: skip
    corpus = text.open_corpus(options.corpus, options.cache)
    table.check_passes(recipe, corpus)
    if not table.train_and_test(recipe, options, setting.end):
        raise OutOfTime
    [model] = finished.find([table.folder(options, recipe)])
    about = {"size": size, "seeds": [seed], "corpus": dict(corpus.about), "rows": options.rows}
    found = Found(about={**about, "tests": asdict(table.tests_of(options))})
    found.tables["trainings"] = [row] if (row := table.measured(model)) else []
    for metric in METRICS:
        found.tables |= metric(model, corpus, options)
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "counts.zip"
        pack(options.models / "table", [model], packed)
        found.files["counts.zip"] = packed.read_bytes()
    return found


def lines(model: Trained, corpus: text.Corpus, options: argparse.Namespace) -> dict[str, list[Row]]:
    """The rows of the table that this training serves."""
    return {"lines": list(summary.records([model], corpus, table.tests_of(options), options.rows, script=SCRIPT))}


Metric = Callable[[Trained, text.Corpus, argparse.Namespace], dict[str, list[Row]]]
#: What is counted of a training while its weights are here: tables by name. What else is to be counted, such as copies
#: from farther back than the training length, is a function like these and is added here.
METRICS: tuple[Metric, ...] = (lines,)


def packages(setting: Setting) -> Path:
    """A folder with the Python files of the packages that are installed here, as many as are taken; made once."""
    target, root, most = setting.work / "packages", Path(sysconfig.get_path("purelib")), MOST_TEXT
    if setting.scale != "full":
        target, root, most = setting.work / "few", Path(__file__).parents[2] / "rope_lessons", 2**20
    with locked(setting.work / "packages.lock"):
        if not (target / "done").exists():
            shutil.rmtree(target, ignore_errors=True)
            copy(root, target / "files", most)
            (target / "done").write_text(str(root), "utf8")
    return target / "files"


def copy(root: Path, target: Path, most: int) -> None:
    """Python files, in the order of their names, as long as they have no more than so many bytes in all."""
    total = 0
    for path in sorted(root.rglob("*.py")):
        size = path.stat().st_size
        if total + size > most:
            break
        there = target / path.relative_to(root)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
        total += size
