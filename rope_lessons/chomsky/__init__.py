"""The Chomsky-hierarchy benchmark: 15 tasks on strings, from a finite automaton's to a Turing tape's."""

from __future__ import annotations

from rope_lessons.chomsky.blind import blind_accuracy, blind_score
from rope_lessons.chomsky.play import playground
from rope_lessons.chomsky.task import Task
from rope_lessons.chomsky.tasks import TASKS

__all__ = ["TASKS", "Task", "blind_accuracy", "blind_score", "playground"]
