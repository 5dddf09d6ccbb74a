"""Chapter 12: train the models of the table and test every row, at the training length and at 2, 4, 8 and 16 times it.

    python -m experiments table --processes 2             # on a CPU: gau-0.3m, seeds 0 to 2
    python -m experiments table --ship                    # then, what the chapter needs beside the table
    python -m experiments table --seeds 0 --minutes 60           # a piece of it; the same line goes on from there
    python -m experiments table --seeds 0 1 2 3 4 --join         # seeds measured before are not measured again

Takes 10 to 16 minutes a seed on two CPU threads.

Every training and every tested row is kept in .models/table/ as soon as it is done, and an interrupted training goes on
from its last checkpoint, so the run may be cut into any pieces. A seed at a time: after each, the table of all seeds so
far is written to table_CONFIG.json, and what was counted for this seed to table_CONFIG/seed-K.zip. With --join,
trainings that are in such a file are taken from it and stay in it: so seeds and trainings of several machines and days
come into one table. Counts of another text, recipe or row are refused.

What is said of each training is in table_CONFIG_trainings.json: how often it read its text; the mean loss of its last
50 steps; the loss of the trained model on windows that it read, without the pasted copies, and on windows cut from the
test text in the same way; tokens a second, the operations that they need, and what share that is of the rate at which
the device was measured to multiply matrices (rope_lessons.lab.speed).

--ship writes
- table_TRAINING.safetensors, seed 0, weights in bfloat16, for each of four trainings, if they were trained here (where
  the table was joined from packed counts there are no weights, and the models that are there stay as they are);
- table_eval_text.json: the first windows of the test set, each of a document of its own, and the accuracies of seed 0
  on them with the weights as they were trained;
- table_documents.json: the hits of every row by seed and document at 8 times the training length, so that two rows can
  be compared document by document.

On a GPU, 512 tokens in training and 8192 at test. No training may read its text more than three times, and these read
262 and 131 million bytes: --corpus takes a folder of text for them, here the Python packages of the machine. It must
not change between two lines. These lines have not been run yet: their times are estimates, made so that a training fits
into ten minutes of one H200. A line that says that the time is over is given again.

    packages="$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    large() { python -m experiments table --seeds 0 --corpus "$packages" --compile --minutes 9 --join "$@"; }

    large --config gau-25m --trainings rope
    large --config gau-25m --trainings rope-logn
    large --config gau-25m --trainings invleaky-w128-logn
    large --config gau-25m --trainings hwfa-w32

    large --config gau-87m --trainings rope
    large --config gau-87m --trainings rope-logn
    large --config gau-87m --trainings invleaky-w128-logn
    large --config gau-87m --trainings hwfa-w16

Each line trains a model, tests all rows that it serves, and adds them to the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments import command
from experiments.packed import pack, unpack
from experiments.radix import LICENCE
from rope_lessons.lab import checkpoint, speed, text, training
from rope_lessons.lab.command import check_extra, run
from rope_lessons.lab.rows import own_row, trainings
from rope_lessons.lab.table import finished, jobs, scoring, shipped, summary
from rope_lessons.lab.table.documents import DOCUMENTS, document_hits
from rope_lessons.lab.table.finished import Trained
from rope_lessons.lab.table.scoring import Evaluation
from rope_lessons.lab.training import Recipe, Team
from rope_lessons.stored import provenance, read_results, read_sealed, write_results, write_sealed

MOST_PASSES = 3  # then a loss on the training text still says something about new text
MEASURED = "measured.json"  # in the folder of a training
SCRIPT = "python -m experiments table"
SHIPPED = {  # training: rows that the chapter tests again
    "rope": ("rope", "ntk-mixed", "rerope-w32-logn-test", "window"),
    "rope-logn": ("rerope-w32-logn",),
    "invleaky-w16-logn": ("invleaky-w16-logn",),
    "hwfa-w16": ("hwfa-w16",),
}


def tests_of(options: argparse.Namespace) -> Evaluation:
    """Fewer windows and depths on a CPU: there the tests of all rows take about as long as the trainings even so."""
    depths = (0.0, 0.5, 1.0) if options.device == "cpu" else Evaluation().depths
    return Evaluation(windows=options.windows, depths=depths)


def schemes(recipe: Recipe, rows: list[str] | None, wanted: list[str] | None = None) -> list[str]:
    """The trainings that the rows need; of these the wanted ones."""
    shared = trainings(recipe.rows.values())
    needed = [name for name, members in shared.items() if rows is None or any(row.name in rows for row in members)]
    return [name for name in needed if wanted is None or name in wanted]


def check(options: argparse.Namespace) -> None:
    """What cannot be done is refused before anything is read or trained."""
    recipe = training.CONFIGS[options.config]
    tests_of(options)
    training.check_minutes(options.minutes)
    text.check_source(options.corpus)
    known = {"rows": list(recipe.rows), "trainings": schemes(recipe, None)}
    for argument, names in known.items():
        if unknown := set(getattr(options, argument) or ()) - set(names):
            raise ValueError(f"{argument} must be among {', '.join(names)}; got {', '.join(sorted(unknown))}")


def tokens_of(recipe: Recipe) -> int:
    """How many tokens a training reads."""
    return recipe.steps * recipe.batch * recipe.train_length


def passes(recipe: Recipe, corpus: text.Corpus) -> float:
    """How often a training reads its text, in the mean."""
    return tokens_of(recipe) / len(corpus.train)


def check_passes(recipe: Recipe, corpus: text.Corpus) -> None:
    """Say how often the text is read, and stop where that is too often."""
    tokens, size, often = tokens_of(recipe), len(corpus.train), passes(recipe, corpus)
    print(f"{tokens:,} tokens a training, {size:,} bytes of {corpus.about['name']}: {often:.2f} passes", flush=True)
    if often > MOST_PASSES:
        least = math.ceil(tokens / MOST_PASSES)
        raise ValueError(
            f"corpus must have at least {least:,} bytes of training text, so that {recipe.size} reads none of it "
            f"more than {MOST_PASSES} times; {corpus.about['name']} has {size:,}. Give a folder with more text, such "
            f"as that of the installed packages (see --help)"
        )


def last_loss(losses: Sequence[float], steps: int = 50) -> float:
    """The mean loss of the last steps, on windows as they are trained on: with pasted copies."""
    return sum(losses[-steps:]) / len(losses[-steps:])


def minutes_until(end: float) -> float:
    return max(0.0, (end - time.time()) / 60)


def folder(options: argparse.Namespace, recipe: Recipe) -> Path:
    """Where a training is kept."""
    return training.folder_of(recipe, options.config, options.models / "table")


def compiler(options: argparse.Namespace) -> str | None:
    return "inductor" if options.compile else None


def train(recipe: Recipe, corpus: text.Corpus, options: argparse.Namespace, end: float) -> bool:
    """Whether the training is done. Then only its last checkpoint is kept."""
    own = folder(options, recipe)
    if not checkpoint.stored(own) and (own / finished.ABOUT).exists():
        return True  # its counts are joined, without weights
    begin, left, last = time.perf_counter(), minutes_until(end), checkpoint.path_of(own, recipe.steps)
    if not is_done(last, recipe, corpus):
        team = Team(torch.device(options.device))
        done = training.train(recipe, corpus, own, team, compiler=compiler(options), minutes=left, quiet=True)
        loss, seconds = last_loss(training.read_losses(own)), time.perf_counter() - begin
        print(f"{recipe.scheme}, seed {recipe.seed}: step {done}, {seconds:.0f} s, loss {loss:.4f}", flush=True)
        if done < recipe.steps:
            return False
    for path in checkpoint.stored(own):
        if path != last and not path.is_dir():
            path.unlink()
    return True


def is_done(last: Path, recipe: Recipe, corpus: text.Corpus) -> bool:
    """Whether the last checkpoint of a training is there and good. If it is damaged, the one before it is not gone."""
    try:
        checkpoint.load(last, training.identity(recipe, corpus.about["sha256"]))
    except checkpoint.CheckpointError:
        return False  # training says why
    return True


def train_and_test(recipe: Recipe, options: argparse.Namespace, end: float) -> bool:
    """One model, in a process of its own: whether it is trained, measured and tested with all of its rows."""
    if options.device == "cpu":
        torch.set_num_threads(1)
    if time.time() > end:
        return False
    corpus = text.open_corpus(options.corpus, options.cache)
    if not train(recipe, corpus, options, end) or time.time() > end:
        return False
    [model] = finished.find([folder(options, recipe)])
    measure(model, corpus, options)
    begin, left = time.perf_counter(), minutes_until(end)
    done = jobs.count_all([model], corpus, tests_of(options), options.rows, options.device, minutes=left)
    print(f"{recipe.scheme}, seed {recipe.seed}: tested in {time.perf_counter() - begin:.0f} s", flush=True)
    return done


# --- what is said of a training --------------------------------------------------------------------------------------


def measure(model: Trained, corpus: text.Corpus, options: argparse.Namespace) -> None:
    """Losses and speed of a training, kept in its folder. Where there are no weights nothing can be measured."""
    path, stored = model.folder / MEASURED, checkpoint.stored(model.folder)
    if not stored or measured(model) is not None:
        return
    recipe, device = model.recipe, torch.device(options.device)
    loaded, _, kept = training.load(stored[-1], device)
    found = {
        "training": recipe.scheme,
        "seed": recipe.seed,
        "checkpoint": model.sha256,
        "tokens": tokens_of(recipe),
        "passes": round(passes(recipe, corpus), 4),
        "last_loss": round(last_loss(kept.tensors[training.LOSSES].tolist()), 5),
        **gap(loaded, recipe, corpus),  # before the steps whose time is taken: they train on
        **speed.measure(loaded, recipe, corpus, device, compiler(options)),
        "compiler": compiler(options),
        "dtype": recipe.dtype,
        "script": SCRIPT,
        **provenance(device),
    }
    write_sealed(path, found)
    print(describe(found), flush=True)


def measured(model: Trained) -> dict[str, Any] | None:
    """What :func:`measure` has kept of a training; None if nothing, or of another one, or if it is damaged."""
    path = model.folder / MEASURED
    try:
        found = read_sealed(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        print(f"{path} is damaged: {error}. The training is measured again where its weights are", flush=True)
        return None
    return found if found.get("checkpoint") == model.sha256 else None


def describe(found: dict[str, Any]) -> str:
    """What is measured, in a line."""
    return (
        f"{found['training']}, seed {found['seed']}: {found['passes']} passes; loss {found['train_loss']:.4f} on "
        f"training text, {found['test_loss']:.4f} on test text, gap {found['gap']:.4f} ± {found['gap_error']:.4f}; "
        f"{found['tokens_per_second']:,} tokens/s, {found['utilisation']:.1%} of the matrix rate "
        f"({found['matrix_rate'] / 1e12:.3g}e12 FLOP/s, {found['dtype']}), the weights' products take "
        f"{found['products_share']:.0%} of the time"
    )


def gap(model: nn.Module, recipe: Recipe, corpus: text.Corpus, count: int = 512) -> dict[str, float]:
    """Loss on text that was trained on, and on new text, with the plan of training.

    The windows are those of whole steps, spread over the training, and as many that are cut from the test text in the
    same way: at random places. Copies are pasted into neither. The windows of the table are others: they begin where a
    document does, and a corpus does not keep where those of its training text begin. One of the two texts may also be
    easier by itself: a small gap says little.

    Args:
        model: trained.
        recipe: of its training.
        corpus: that of the training.
        count: how many windows of each text, in whole steps.

    Returns:
        both losses in nats per token, their difference, and its standard error over windows.
    """
    losses, device = [], next(model.parameters()).device
    for content in (corpus.train, corpus.test):
        steps = np.linspace(0, recipe.steps - 1, min(recipe.steps, max(1, count // recipe.batch))).astype(int)
        cut = partial(text.batch_of, content, seed=recipe.seed, batch=recipe.batch, length=recipe.train_length)
        windows = torch.cat([cut(int(step)) for step in steps]).to(device)
        found = scoring.score(model, own_row(recipe.row), windows, training.DTYPES[recipe.dtype])[1]
        losses.append(found.mean(dim=1))
    train, test = (values.mean().item() for values in losses)
    error = math.hypot(*(values.std().item() / len(values) ** 0.5 for values in losses))
    return {
        "train_loss": round(train, 5),
        "test_loss": round(test, 5),
        "gap": round(test - train, 5),
        "gap_error": round(error, 5),
    }


def write_trainings(options: argparse.Namespace, models: Sequence[Trained], corpus: text.Corpus) -> None:
    """What is said of the trainings of a table. What was measured elsewhere stays; what was not is not there."""
    result = options.out / f"table_{options.config}_trainings.json"
    lines = [*measured_elsewhere(result), *filter(None, map(measured, models))]
    of = {line["checkpoint"]: line for line in lines}
    found = [of[model.sha256] for model in models if model.sha256 in of]
    about = {key: corpus.about[key] for key in ("name", "train_bytes", "test_bytes", "sha256")}
    if found:
        origin = {"script": SCRIPT, **provenance(options.device)}
        result.parent.mkdir(parents=True, exist_ok=True)
        write_results(result, {**origin, "config": options.config, "corpus": about}, trainings=found)
        print(f"written: {result}", flush=True)


def measured_elsewhere(result: Path) -> list[dict[str, Any]]:
    """What the file of the results says of trainings."""
    if not result.exists():
        return []
    try:
        return list(read_results(result)["trainings"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{result} is damaged: {error!r}. Delete it, or take it from git again") from error


# --- the table -------------------------------------------------------------------------------------------------------


def packed(options: argparse.Namespace, seed: int) -> Path:
    """Where the counts of a seed are kept."""
    folder: Path = options.out / f"table_{options.config}"
    return folder / f"seed-{seed}.zip"


def join(options: argparse.Namespace, seed: int) -> list[str]:
    """Take what is counted of a seed from its file: the trainings that are in it."""
    path = packed(options, seed)
    if not options.join or not path.exists():
        return []
    unpack(path, options.models / "table")
    with zipfile.ZipFile(path) as file:
        folders = [Path(name).parent for name in file.namelist() if name.endswith(finished.ABOUT)]
    return [folder.parent.name for folder in folders]


def write(options: argparse.Namespace, recipes: Sequence[Recipe], corpus: text.Corpus) -> None:
    """The table of all models so far, what is said of them, and the counts of the last seed."""
    result, last = options.out / f"table_{options.config}.json", recipes[-1].seed
    models = finished.find([folder(options, recipe) for recipe in recipes])
    found = summary.records(models, corpus, tests_of(options), options.rows, script=SCRIPT)
    lines = summary.write_table(found, result)
    print(f"written: {result}, {lines} lines of {len(models)} models", flush=True)
    write_trainings(options, models, corpus)
    pack(options.models / "table", [model for model in models if model.recipe.seed == last], packed(options, last))
    print(f"written: {packed(options, last)}", flush=True)


def measure_all(options: argparse.Namespace) -> None:
    """Train and test, a seed at a time."""
    end = time.time() + 60 * options.minutes
    check(options)
    corpus = text.open_corpus(options.corpus, options.cache)  # prepared once, before the processes need it
    check_passes(training.CONFIGS[options.config], corpus)
    with training.only_one(options.models / "table" / options.config), contextlib.ExitStack() as stack:
        each: Callable[..., Iterable[bool]] = map
        if options.processes > 1:
            pool = ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn"))
            each = stack.enter_context(pool).map
        done: list[Recipe] = []
        joined = {seed: join(options, seed) for seed in options.seeds}
        for seed in options.seeds:
            recipe = replace(training.CONFIGS[options.config], seed=seed)
            chosen = [*schemes(recipe, options.rows, options.trainings), *joined[seed]]
            some = [replace(recipe, scheme=scheme) for scheme in schemes(recipe, None, chosen)]
            if not all(each(partial(train_and_test, options=options, end=end), some)):
                return print("The time is over. The same line goes on from there.")
            done += some
            write(options, done, corpus)
    return None


# --- what the chapter needs beside the table -------------------------------------------------------------------------


def ship(options: argparse.Namespace) -> None:
    """Models, text, and hits by document, of trainings that nobody changes meanwhile."""
    torch.set_num_threads(1)
    corpus = text.open_corpus(options.corpus, options.cache)
    options.out.mkdir(parents=True, exist_ok=True)
    with training.only_one(options.models / "table" / options.config):
        ship_models(options, corpus)
        ship_documents(options, corpus)


def ship_models(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """The four models, and the text that they are tested with again."""
    recipes = [replace(training.CONFIGS[options.config], scheme=scheme) for scheme in SHIPPED]
    stored = [checkpoint.stored(folder(options, recipe)) for recipe in recipes]
    if not all(stored):
        return print("the weights of seed 0 are not here: the models that are there stay as they are", flush=True)
    longest = tests_of(options).factors[-1] * training.CONFIGS[options.config].train_length
    windows, documents = text.natural_windows(corpus, longest, options.windows)
    if len(documents.unique()) < len(windows):
        most = len(documents.unique())
        raise ValueError(f"windows must be at most {most}, one of each document, got {options.windows}")
    accuracies = {}
    for names, (*_, path) in zip(SHIPPED.values(), stored, strict=True):
        print(f"written: {export(path, options.out)}", flush=True)
        model, own, _ = training.load(path)
        for name in names:
            found = shipped.retest(model, own, name, windows)
            accuracies[name] = {kind: values.mean().item() for kind, values in found.items()}
    path = options.out / shipped.SHIPPED_TEXT.name
    export_text(path, corpus, windows, accuracies, LICENCE)
    return print(f"written: {path}", flush=True)


def export(path: Path, folder: Path) -> Path:
    """The model of a checkpoint, as the package ships it: weights in bfloat16, and the recipe."""
    _, recipe, found = training.load(path)
    weights = {
        name.removeprefix("model."): tensor.to(torch.bfloat16)
        for name, tensor in found.tensors.items()
        if name.startswith("model.")
    }
    target = folder / f"table_{recipe.scheme}.safetensors"
    about = {"format": shipped.FORMAT, "recipe": json.dumps(found.recipe, sort_keys=True), "checkpoint": found.sha256}
    checkpoint.write_tensors(target, weights, about)
    return target


def export_text(
    path: Path, corpus: text.Corpus, windows: Tensor, accuracies: Mapping[str, Mapping[str, float]], licence: str
) -> None:
    """A part of the test text, one window of a document, and the accuracies of the weights as they were trained."""
    rounded = {row: {kind: round(value, 6) for kind, value in both.items()} for row, both in accuracies.items()}
    content = {
        "script": SCRIPT,
        "licence": licence,
        "corpus": corpus.about["name"],
        "corpus_sha256": corpus.about["sha256"],
        "accuracies": rounded,
        "windows": [bytes(window).decode("latin-1") for window in windows.tolist()],
    }
    write_results(path, content)


def ship_documents(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """Every row of every seed, from what is counted."""
    recipe = training.CONFIGS[options.config]
    folders = [
        folder(options, replace(recipe, scheme=scheme, seed=seed))
        for seed in options.seeds
        for scheme in schemes(recipe, None)
    ]
    found = document_hits(finished.find(folders), corpus, tests_of(options))
    origin = {"script": SCRIPT, **provenance(), "seeds": list(options.seeds)}
    path = options.out / DOCUMENTS.name
    write_results(path, {**origin, **found})
    print(f"written: {path}", flush=True)


def parse(line: Sequence[str] | None = None) -> argparse.Namespace:
    parser = command.parser("experiments table", __doc__)
    parser.add_argument("--ship", action="store_true", help="write what the chapter needs beside a measured table")
    parser.add_argument("--config", choices=tuple(training.CONFIGS), default="gau-0.3m", help="model and training")
    command.add_seeds(parser, (0, 1, 2))
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--rows", nargs="+", metavar="ROW", help="only these rows, and the trainings that they need")
    some.add_argument("--trainings", nargs="+", metavar="ROW", help="only these, and all rows that they serve")
    parser.add_argument("--corpus", default="stdlib", help="a name, or a folder of text: as lab train takes it")
    parser.add_argument("--windows", type=command.count, default=8, help="pieces of text, of the longest length each")
    command.add_places(parser)
    command.add_cache(parser)
    parser.add_argument("--join", action="store_true", help="take trainings from OUT/table_CONFIG/ and keep them")
    command.add_minutes(parser)
    parser.add_argument("--processes", type=command.count, default=1, help="models at a time; on a CPU a thread each")
    parser.add_argument("--compile", action="store_true", help="torch.compile, for a GPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="a card if there is one")
    options = command.parse(parser, line)
    command.check_alone(
        parser, options, "ship", ("config", "seeds", "corpus", "cache", "windows", "out", "store", "models", "device")
    )
    try:
        options.device = training.device_of(options.device).type
    except ValueError as error:
        parser.error(f"argument --device: {error}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)

    def work() -> None:
        check_extra()
        (ship if options.ship else measure_all)(options)

    return run(SCRIPT, work)


if __name__ == "__main__":
    sys.exit(main())
