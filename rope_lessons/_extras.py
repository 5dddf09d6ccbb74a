"""The packages that only a part of this package needs, and one line that says so where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# The extras of pyproject.toml; their packages are imported under the names that pip knows.
EXTRAS = {
    "book": ("matplotlib", "sympy", "mpmath", "safetensors"),
    "lab": ("safetensors", "tqdm", "filelock"),
    "hf": ("transformers",),
}


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around the imports of an extra's packages.

    The command that the error names installs what is missing of the extra: it works however this package was
    installed, from an index, an address, a file or a checkout.

    Args:
        name: of the extra.
        what: needs them, as the user calls it.

    Raises:
        ImportError: one of them is missing. An error of another import stays what it is.

    >>> with extra("book", "a figure"):
    ...     import matplotlib
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS[name]:
            raise
        missing = " ".join(package for package in EXTRAS[name] if find_spec(package) is None)
        told = f"{what} needs {error.name}, of the extra [{name}]: pip install {missing}"
        raise ImportError(told, name=error.name) from error
