"""Random calls of the package, drawn by hypothesis, each compared with an oracle that shares no code with it.

``make test`` runs a fixed sample. ``python -m tests.fuzz --minutes 60`` draws new ones for as long as wanted.
"""
