"""Write the locks, every file that pip may install with its SHA-256: ``python -m tools.lock``.

``requirements.lock`` has the versions of requirements.txt, except PyTorch's, and what they need on other systems.
PyTorch comes in two builds of one version, and each has a lock of its own, which includes the first:
``requirements-cpu.lock`` takes the ``+cpu`` build from PyTorch's index; ``requirements-pypi.lock`` takes the
registry's, with the CUDA packages that it needs on Linux (gigabytes of them). One entry with the files of both would
leave the choice to pip, and pip prefers a file whose address carries a hash to one in a folder.

uv reads the registry, so this needs the network. Where PyTorch's index is out of reach, ``--cpu-wheels FOLDER`` takes
the hashes of the ``+cpu`` wheels that lie in a folder.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.project import ROOT

UV = "uv==0.13.9"
PYTHON = "3.11.5"  # the lowest that the pinned packages take
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
REQUIREMENTS = "requirements.txt"
COMMON, CPU, PYPI = LOCKS = ("requirements.lock", "requirements-cpu.lock", "requirements-pypi.lock")
HEADERS = {
    COMMON: f"# {REQUIREMENTS} without PyTorch. Not to be installed alone: {CPU} and {PYPI} include it.\n",
    CPU: f"# PyTorch without CUDA: PIP_EXTRA_INDEX_URL={CPU_INDEX} pip install -r {CPU}\n-r {COMMON}\n",
    PYPI: f"# PyTorch as the registry has it, on Linux with CUDA: pip install -r {PYPI}\n-r {COMMON}\n",
}

Lock = dict[Requirement, set[str]]


def read(text: str) -> Lock:
    """The entries of a requirements file: {requirement: its SHA-256 sums}."""
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    split = [line.split(" --hash=sha256:") for line in lines if line and not line.startswith(("#", "-r "))]
    return {Requirement(requirement): set(sums) for requirement, *sums in split}


def write(lock: Lock, name: str) -> str:
    entries = sorted(lock.items(), key=lambda entry: canonicalize_name(entry[0].name))
    blocks = [" \\\n    --hash=sha256:".join([str(requirement), *sorted(sums)]) for requirement, sums in entries]
    return f"# Written by `python -m tools.lock` for Python 3.11.\n{HEADERS[name]}" + "\n".join(blocks) + "\n"


def pins(lock: Lock) -> dict[str, str]:
    """{name: version} of all entries."""
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in lock}


def split(complete: Lock, cpu: Lock, pinned: dict[str, str]) -> dict[str, Lock]:
    """By file name. What only Linux needs and requirements.txt does not name goes with the registry's torch."""

    def of_torch(one: Requirement) -> bool:
        for_linux = 'sys_platform == "linux"' in str(one.marker)
        return one.name == "torch" or (for_linux and canonicalize_name(one.name) not in pinned)

    pypi = {one: sums for one, sums in complete.items() if of_torch(one)}
    return {COMMON: {one: sums for one, sums in complete.items() if one not in pypi}, CPU: cpu, PYPI: pypi}


def compiled(folder: Path, requirements: str, *options: str) -> Lock:
    """What uv resolves, for every system, with the hashes of all files of an index."""
    command = [str(folder / "bin" / "uv"), "pip", "compile", "--quiet", "--universal", "--generate-hashes", *options]
    command += ["--no-header", "--no-annotate", "--no-python-downloads", "--python-version", PYTHON, "-"]
    done = subprocess.run(command, input=requirements, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"uv found no lock:\n{done.stderr}")
    return read(done.stdout)


def of_folder(folder: Path, torch: Requirement) -> Lock:
    wheels = sorted(folder.glob(f"{str(torch).replace('==', '-')}-*.whl"))
    if not wheels:
        sys.exit(f"{folder} has no wheel of {torch}")
    print(torch, "by the hashes of:", *(wheel.name for wheel in wheels))
    return {torch: {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description="Write the locks of requirements.txt.")
    parser.add_argument(
        "--cpu-wheels", type=Path, metavar="FOLDER", help="+cpu wheels of torch, instead of their index"
    )
    arguments = parser.parse_args()
    requirements = (ROOT / REQUIREMENTS).read_text("utf8")
    pinned = pins(read(requirements))
    torch = Requirement(f"torch=={pinned['torch']}+cpu")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", name, UV], check=True)
        if arguments.cpu_wheels:
            cpu = of_folder(arguments.cpu_wheels, torch)
        else:
            cpu = compiled(folder, str(torch), "--no-deps", "--index-url", CPU_INDEX)
        complete = compiled(folder, requirements)
    for file, lock in split(complete, cpu, pinned).items():
        (ROOT / file).write_text(write(lock, file), "utf8")
        print(f"{file}: {len(lock)} packages, {sum(map(len, lock.values()))} files")


if __name__ == "__main__":
    main()
