"""One table for the book: what every method does at its training length and at eight times that, on one model."""

from rope_lessons.scoreboard import hits, intervals, live, metrics, recipe, rows, scoring, summary, table

__all__ = ["hits", "intervals", "live", "metrics", "recipe", "rows", "scoring", "summary", "table"]
