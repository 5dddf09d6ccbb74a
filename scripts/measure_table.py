"""Train the models of the results table and test every row, at the training length and at 2, 4, 8 and 16 times it.

    python scripts/measure_table.py --processes 2         # on a CPU: gau-0.3m, seeds 0 to 2
    python scripts/measure_table.py --seeds 0 --minutes 60        # a piece of it; the same line goes on from there
    python scripts/measure_table.py --seeds 0 1 2 3 4 --join      # seeds measured before are not measured again

Every training and every tested row is kept in .models/table/ as soon as it is done, and an interrupted training goes on
from its last checkpoint, so the run may be cut into any pieces. A seed at a time: after each, the table of all seeds so
far is written to results/table_CONFIG.csv, with a copy in rope_lessons/checkpoints/, and what was counted for this seed
to results/table_CONFIG/seed-K.zip. With --join seeds that have such a file are taken from it: so seeds of several
machines and days come into one table. Counts of another text, recipe or row are refused.

On a GPU, 512 tokens in training and 8192 at test. These lines have not been run yet: their times are estimates, made so
that a training fits into ten minutes of one H200.

    python scripts/measure_table.py --config gau-25m --seeds 0 --compile --minutes 9
    python scripts/measure_table.py --config gau-87m --seeds 0 --compile --minutes 9 --rows rope rope-logn rerope-w128
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from common import MODELS, ROOT

from rope_lessons.lab import byte_lm, checkpoint, evaluation, text, training
from rope_lessons.lab.__main__ import folder_of
from rope_lessons.lab.evaluation import Evaluation
from rope_lessons.lab.rows import trainings
from rope_lessons.lab.training import Recipe, Team

OUT = MODELS / "table"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tests_of(options: argparse.Namespace) -> Evaluation:
    """Fewer windows and depths on a CPU: there the tests of all rows take about as long as the trainings even so."""
    depths = (0.0, 0.5, 1.0) if DEVICE == "cpu" else Evaluation().depths
    return Evaluation(windows=options.windows, depths=depths)


def schemes(recipe: Recipe, rows: list[str] | None) -> list[str]:
    """The trainings that the rows need."""
    shared = trainings(recipe.rows.values())
    return [name for name, members in shared.items() if rows is None or any(row.name in rows for row in members)]


def train(recipe: Recipe, corpus: text.Corpus, folder: Path, compiler: str | None, end: float) -> bool:
    """Whether the training is done. Then only its last checkpoint is kept."""
    if not checkpoint.stored(folder) and (folder / evaluation.ABOUT).exists():
        return True  # its counts are joined, without weights
    begin, left = time.perf_counter(), (end - time.time()) / 60
    newest = checkpoint.stored(folder)[-1:]
    if newest != [checkpoint.path_of(folder, recipe.steps)]:
        own = Team(torch.device(DEVICE))
        done = training.train(recipe, corpus, folder, own, compiler=compiler, minutes=left, quiet=True)
        losses = training.read_losses(folder)[-50:]
        last = sum(losses) / len(losses)
        seconds = time.perf_counter() - begin
        print(f"{recipe.scheme}, seed {recipe.seed}: step {done}, {seconds:.0f} s, loss {last:.4f}", flush=True)
    *older, last_one = checkpoint.stored(folder)
    if last_one != checkpoint.path_of(folder, recipe.steps):
        return False
    checkpoint.load(last_one)  # before the others go
    for path in older:
        path.unlink()
    return True


def train_and_test(recipe: Recipe, options: argparse.Namespace, end: float) -> bool:
    """One model, in a process of its own: whether it is trained and all of its rows are tested."""
    if DEVICE == "cpu":
        torch.set_num_threads(1)
    if time.time() > end:
        return False
    corpus, folder = text.open_corpus("stdlib", options.cache), folder_of(recipe, options.config, OUT)
    if not train(recipe, corpus, folder, "inductor" if options.compile else None, end):
        return False
    begin, left = time.perf_counter(), (end - time.time()) / 60
    done = evaluation.count_all(
        evaluation.find([folder]), corpus, tests_of(options), options.rows, DEVICE, minutes=left
    )
    print(f"{recipe.scheme}, seed {recipe.seed}: tested in {time.perf_counter() - begin:.0f} s", flush=True)
    return done


def packed(options: argparse.Namespace, seed: int) -> Path:
    """Where the counts of a seed are kept."""
    return ROOT / "results" / f"table_{options.config}" / f"seed-{seed}.zip"


def write(options: argparse.Namespace, recipes: Sequence[Recipe], corpus: text.Corpus) -> None:
    """The table of all models so far, and the counts of the last seed."""
    result = ROOT / "results" / f"table_{options.config}.csv"
    models = evaluation.find([folder_of(recipe, options.config, OUT) for recipe in recipes])
    found = evaluation.records(models, corpus, tests_of(options), options.rows, script="scripts/measure_table.py")
    lines = evaluation.write_csv(found, result)
    shutil.copy(result, byte_lm.CHECKPOINTS / result.name)
    print(f"{len(models)} models: {lines} lines in {result.name}", flush=True)
    seed = recipes[-1].seed
    evaluation.pack(OUT, [model for model in models if model.recipe.seed == seed], packed(options, seed))


def main(options: argparse.Namespace) -> None:
    end = time.time() + 60 * options.minutes
    corpus = text.open_corpus("stdlib", options.cache)  # prepared once, before the processes need it
    done: list[Recipe] = []
    for path in [packed(options, seed) for seed in options.seeds if options.join]:
        if path.exists():
            evaluation.unpack(path, OUT)
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        for seed in options.seeds:
            recipe = replace(training.CONFIGS[options.config], seed=seed)
            some = [replace(recipe, scheme=scheme) for scheme in schemes(recipe, options.rows)]
            if not all(pool.map(train_and_test, some, [options] * len(some), [end] * len(some))):
                return print("The time is over. The same line goes on from there.")
            done += some
            write(options, done, corpus)
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=tuple(training.CONFIGS), default="gau-0.3m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", nargs="+", help="only these rows, and the trainings that they need")
    parser.add_argument("--windows", type=int, default=8, help="pieces of test text, of the longest length each")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after them")
    parser.add_argument("--join", action="store_true", help="take the seeds of results/table_CONFIG/ from there")
    parser.add_argument("--processes", type=int, default=1, help="models at a time; on a CPU one thread each")
    parser.add_argument("--compile", action="store_true", help="torch.compile, for a GPU")
    parser.add_argument("--cache", type=Path, default=text.CACHE, help="of the prepared text")
    main(parser.parse_args())
