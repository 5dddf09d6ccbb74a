"""The 15 tasks of the Chomsky-hierarchy benchmark, in one table."""

from __future__ import annotations

from rope_lessons.chomsky.context_free import (
    ModularArithmeticBrackets,
    ReverseString,
    SolveEquation,
    StackManipulation,
)
from rope_lessons.chomsky.context_sensitive import (
    BinaryAddition,
    BinaryMultiplication,
    BucketSort,
    ComputeSqrt,
    DuplicateString,
    MissingDuplicateString,
    OddsFirst,
)
from rope_lessons.chomsky.regular import CycleNavigation, EvenPairs, ModularArithmetic, ParityCheck
from rope_lessons.chomsky.task import Task

#: The tasks by name, in the order of the hierarchy, each as the published code has it.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        EvenPairs(),
        ModularArithmetic(),
        ParityCheck(),
        CycleNavigation(),
        StackManipulation(),
        ReverseString(),
        ModularArithmeticBrackets(),
        SolveEquation(),
        DuplicateString(),
        MissingDuplicateString(),
        OddsFirst(),
        BinaryAddition(),
        BinaryMultiplication(),
        ComputeSqrt(),
        BucketSort(),
    )
}
