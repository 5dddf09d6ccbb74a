"""All that a GPU has to tell the book, as a queue of small steps: ``python -m experiments.gpu``."""
