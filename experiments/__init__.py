"""Everything that the book measures: one module a chapter. ``python -m experiments`` lists them."""
