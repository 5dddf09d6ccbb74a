"""Train the models of the results table and test every row, at the training length and at 2, 4, 8 and 16 times it.

    python scripts/measure_table.py                       # on a CPU: gau-0.3m, seeds 0 to 4; many hours on one core
    python scripts/measure_table.py --seeds 0 --minutes 60        # a piece of it; the same line goes on from there

Every training and every tested row is kept in .models/table/ as soon as it is done, and an interrupted training goes on
from its last checkpoint, so the run may be cut into any pieces. A seed at a time: after each, the table of all seeds so
far is written to results/table_CONFIG.csv, with a copy in rope_lessons/checkpoints/.

On a GPU, 512 tokens in training and 8192 at test. These lines have not been run yet: their times are estimates, made so
that a training fits into ten minutes of one H200.

    python scripts/measure_table.py --config gau-25m --seeds 0 --compile --minutes 9
    python scripts/measure_table.py --config gau-87m --seeds 0 --compile --minutes 9 --rows rope rope-logn rerope-w128
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path

import torch
from common import MODELS, ROOT

from rope_lessons.lab import byte_lm, checkpoint, evaluation, text, training
from rope_lessons.lab.__main__ import folder_of
from rope_lessons.lab.rows import trainings
from rope_lessons.lab.training import Recipe, Team

OUT = MODELS / "table"


def schemes(recipe: Recipe, rows: list[str] | None) -> list[str]:
    """The trainings that the rows need."""
    shared = trainings(recipe.rows.values())
    return [name for name, members in shared.items() if rows is None or any(row.name in rows for row in members)]


def train(recipe: Recipe, corpus: text.Corpus, folder: Path, own: Team, compiler: str | None, minutes: float) -> bool:
    """Whether the training is done. Then only its last checkpoint is kept."""
    begin = time.perf_counter()
    newest = checkpoint.stored(folder)[-1:]
    if newest != [checkpoint.path_of(folder, recipe.steps)]:
        done = training.train(recipe, corpus, folder, own, compiler=compiler, minutes=minutes, quiet=True)
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


def main(options: argparse.Namespace) -> None:
    end = time.monotonic() + 60 * options.minutes
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)
    own = Team(torch.device(device))
    corpus = text.open_corpus("stdlib", options.cache)
    tests = evaluation.Evaluation(windows=options.windows)
    result = f"table_{options.config}.csv"
    done: list[int] = []
    for seed in options.seeds:
        recipe = replace(training.CONFIGS[options.config], seed=seed)
        for scheme in schemes(recipe, options.rows):
            one = replace(recipe, scheme=scheme)
            left = (end - time.monotonic()) / 60
            compiler = "inductor" if options.compile else None
            if left <= 0 or not train(one, corpus, folder_of(one, options.config, OUT), own, compiler, left):
                return print("The time is over. The same line goes on from there.")
        done.append(seed)
        folders = [
            folder_of(replace(recipe, scheme=scheme, seed=number), options.config, OUT)
            for scheme in schemes(recipe, options.rows)
            for number in done
        ]
        models = evaluation.find(folders)
        begin, left = time.perf_counter(), (end - time.monotonic()) / 60
        if not evaluation.count_all(models, corpus, tests, options.rows, device, minutes=left):
            return print("The time is over. The same line goes on from there.")
        lines = evaluation.write_csv(evaluation.records(models, corpus, tests, options.rows), ROOT / "results" / result)
        shutil.copy(ROOT / "results" / result, byte_lm.CHECKPOINTS / result)
        print(f"seeds {done}: tested in {time.perf_counter() - begin:.0f} s, {lines} lines in {result}", flush=True)
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=tuple(training.CONFIGS), default="gau-0.3m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--rows", nargs="+", help="only these rows, and the trainings that they need")
    parser.add_argument("--windows", type=int, default=32, help="pieces of test text, of the longest length each")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after them")
    parser.add_argument("--compile", action="store_true", help="torch.compile, for a GPU")
    parser.add_argument("--cache", type=Path, default=text.CACHE, help="of the prepared text")
    main(parser.parse_args())
