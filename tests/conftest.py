"""Shared by all tests: the devices there are, and a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tools.project import ROOT

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)

# A first call of a PyTorch operation is slow, and a loaded machine slower: no deadline for one example. The same
# examples in every run: a failure can be repeated.
settings.register_profile("rope_lessons", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("rope_lessons")


def pytest_report_header() -> str:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no CUDA device, tests run on cpu only"
    return f"torch {torch.__version__}; {gpu}"


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive and the wheel of a release."""
    from tools.release import build_package  # imports the package, which tests/toy_kind.py must be able to do first

    return build_package(ROOT, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def wheel(release: tuple[Path, Path]) -> Path:
    return release[1]
