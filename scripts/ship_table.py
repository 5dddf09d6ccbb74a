"""Ship what chapter 12 needs beside the results table: four models of it, a part of its test text, hits by document.

    python scripts/ship_table.py          # after scripts/measure_table.py

Writes into rope_lessons/data/

- table_TRAINING.safetensors, seed 0, weights in bfloat16, for each of the trainings below, if they were trained here
  (where the table was joined from packed counts there are no weights, and the shipped models stay as they are);
- table_eval_text.json: the first windows of the test set, each of a document of its own, and the accuracies of seed 0
  on them with the weights as they were trained;
- table_documents.json: the hits of every row by seed and document at 8 times the training length, so that two rows can
  be compared document by document.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import arguments
import torch
from common import MODELS, provenance
from measure_table import schemes, tests_of
from train_radix_checkpoint import LICENCE

from rope_lessons.lab import __main__ as command
from rope_lessons.lab import checkpoint, text, training
from rope_lessons.lab.__main__ import folder_of
from rope_lessons.lab.table import finished, shipped
from rope_lessons.lab.table.documents import DOCUMENTS, document_hits
from rope_lessons.stored import DATA, write_whole

ROWS = {  # training: rows that the chapter tests again
    "rope": ("rope", "ntk-mixed", "rerope-w32-logn-test", "window"),
    "rope-logn": ("rerope-w32-logn",),
    "invleaky-w16-logn": ("invleaky-w16-logn",),
    "hwfa-w16": ("hwfa-w16",),
}


def ship_models(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """The four models, and the text that they are tested with again."""
    recipes = [replace(training.CONFIGS[options.config], scheme=scheme) for scheme in ROWS]
    stored = [checkpoint.stored(folder_of(recipe, options.config, options.models)) for recipe in recipes]
    if not all(stored):
        return print("the weights of seed 0 are not here: the shipped models stay as they are", flush=True)
    longest = tests_of(options).factors[-1] * training.CONFIGS[options.config].train_length
    windows, documents = text.natural_windows(corpus, longest, options.windows)
    if len(documents.unique()) < len(windows):
        most = len(documents.unique())
        raise ValueError(f"windows must be at most {most}, one of each document, got {options.windows}")
    accuracies = {}
    for names, (*_, path) in zip(ROWS.values(), stored, strict=True):
        print(shipped.export(path, DATA), flush=True)
        model, own, _ = training.load(path)
        for name in names:
            found = shipped.retest(model, own, name, windows)
            accuracies[name] = {kind: values.mean().item() for kind, values in found.items()}
    shipped.export_text(shipped.SHIPPED_TEXT, corpus, windows, accuracies, LICENCE)
    return None


def ship_documents(options: argparse.Namespace, corpus: text.Corpus) -> None:
    """Every row of every seed, from what is counted."""
    recipe = training.CONFIGS[options.config]
    folders = [
        folder_of(replace(recipe, scheme=scheme, seed=seed), options.config, options.models)
        for seed in options.seeds
        for scheme in schemes(recipe, None)
    ]
    found = document_hits(finished.find(folders), corpus, tests_of(options))
    content = json.dumps({**provenance(__file__), "seeds": options.seeds, **found}) + "\n"
    write_whole(DOCUMENTS, lambda unfinished: unfinished.write_text(content))
    print(f"{len(found['hits'])} rows in {DOCUMENTS.name}", flush=True)


def ship(options: argparse.Namespace) -> None:
    """All of it, of trainings that nobody changes meanwhile."""
    torch.set_num_threads(1)
    corpus = text.open_corpus(options.corpus, options.cache)
    with training.only_one(options.models / options.config):
        ship_models(options, corpus)
        ship_documents(options, corpus)


def main(line: Sequence[str] | None = None) -> int:
    parser = arguments.with_seeds(__doc__, default=(0, 1, 2))
    parser.add_argument("--config", choices=tuple(training.CONFIGS), default="gau-0.3m")
    parser.add_argument("--models", type=Path, default=MODELS / "table", help="folder of the trainings")
    parser.add_argument("--windows", type=arguments.count, default=8, help="those of the table")
    parser.add_argument("--corpus", default="stdlib", help="that of the table: a name, or a folder of text")
    parser.add_argument("--cache", type=Path, default=text.CACHE, help="of the prepared text")
    options = parser.parse_args(line)
    return command.run("scripts/ship_table.py", lambda: ship(options) or 0)


if __name__ == "__main__":
    sys.exit(main())
