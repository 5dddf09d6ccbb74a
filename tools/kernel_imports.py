"""What every chapter imports. Only the process that kernels are forked from imports this (see tools.kernels)."""

import os

# Before Matplotlib is imported: what ipykernel sets, which is too late for a Matplotlib that is there already. A
# variable of the environment, so in no process that goes on to start others.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"

import ipykernel.kernelapp  # noqa: F401

import rope_lessons.figures  # noqa: F401
