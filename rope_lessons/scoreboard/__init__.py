"""One table for the book: what every method does at its training length and at eight times that, on one model."""

from rope_lessons.scoreboard import intervals, live, metrics, recipe, rows, scoring, summary

__all__ = ["intervals", "live", "metrics", "recipe", "rows", "scoring", "summary"]
