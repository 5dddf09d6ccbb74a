"""The table: what trained models do at eight times their length with every row that they serve.

``finished`` finds the trainings; ``jobs`` counts with ``scoring`` and keeps it with ``counts``; ``summary`` writes the
table; ``lines`` and ``documents`` read it. Chapter 12.
"""

from rope_lessons.lab.table import (
    counts,
    documents,
    finished,
    intervals,
    jobs,
    knobs,
    lines,
    passkey,
    published,
    scoring,
    shipped,
    summary,
)

__all__ = [
    "counts",
    "documents",
    "finished",
    "intervals",
    "jobs",
    "knobs",
    "lines",
    "passkey",
    "published",
    "scoring",
    "shipped",
    "summary",
]
