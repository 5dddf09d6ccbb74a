"""What is fetched, unpacked, run or loaded, and from where: locks, workflows, risky calls, no connection on import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import lock
from tools.project import ROOT

# --- the locks ------------------------------------------------------------------------------------------------


def locked(name: str) -> lock.Lock:
    return lock.read((ROOT / name).read_text("utf8"))


def out_of_step(requirements: str) -> dict[str, set[tuple[str, str]]]:
    """{lock: the (name, version) that it lacks or has besides}; packages for other systems carry a marker."""
    wanted = set(lock.pins(lock.read(requirements)).items())
    common = {one: sums for one, sums in locked(lock.COMMON).items() if one.marker is None}
    found = {}
    for name in (lock.CPU, lock.PYPI):
        with_torch = common | {one: sums for one, sums in locked(name).items() if one.marker is None}
        has = {(package, version.removesuffix("+cpu")) for package, version in lock.pins(with_torch).items()}
        found[name] = has ^ wanted
    return found


def test_locks_have_the_pinned_versions() -> None:
    differences = out_of_step((ROOT / lock.REQUIREMENTS).read_text("utf8"))
    assert differences == {lock.CPU: set(), lock.PYPI: set()}, "python -m tools.lock"


@pytest.mark.parametrize(
    ("old", "new", "packages"),
    [("tqdm==", "tqdm==0.", {"tqdm"}), ("torch==", "torch==0.", {"torch"}), ("tqdm==", "tpdm==", {"tqdm", "tpdm"})],
)
def test_a_changed_pin_asks_for_new_locks(old: str, new: str, packages: set[str]) -> None:
    changed = (ROOT / lock.REQUIREMENTS).read_text("utf8").replace(f"\n{old}", f"\n{new}")
    for differences in out_of_step(changed).values():
        assert {package for package, _ in differences} == packages


@pytest.mark.parametrize("name", lock.LOCKS)
def test_every_entry_of_a_lock_has_hashes(name: str) -> None:
    """An exact version and at least one whole SHA-256: pip then takes no file without one."""
    for requirement, sums in locked(name).items():
        assert re.fullmatch(r"==[\w.+]+", str(requirement.specifier)), requirement
        assert sums, requirement
        assert all(re.fullmatch("[0-9a-f]{64}", one) for one in sums), requirement


def test_locks_are_as_written() -> None:
    """No edit by hand, and what is read is what was written."""
    for name in lock.LOCKS:
        text = (ROOT / name).read_text("utf8")
        assert lock.write(lock.read(text), name) == text


def test_both_builds_of_torch() -> None:
    cpu, pypi = (next(one for one in locked(name) if one.name == "torch") for name in (lock.CPU, lock.PYPI))
    assert str(cpu) == f"{pypi}+cpu"
    assert not locked(lock.CPU)[cpu] & locked(lock.PYPI)[pypi]
    assert "torch" not in lock.pins(locked(lock.COMMON))
    cuda = {one.name for one in locked(lock.PYPI)} - {"torch"}
    assert cuda
    assert all(re.match("nvidia-|cuda-|triton$", name) for name in cuda), cuda


def test_split() -> None:
    """What Linux alone needs and requirements.txt does not name belongs to the registry's build of torch."""
    complete = lock.read(
        'appnope==1 ; sys_platform == "darwin" \\\n    --hash=sha256:aa\n'
        'greenlet==1 ; sys_platform == "linux" \\\n    --hash=sha256:bb\n'
        'nvidia_nccl==2 ; sys_platform == "linux" \\\n    --hash=sha256:cc \\\n    --hash=sha256:dd\n'
        "torch==3 \\\n    --hash=sha256:ee\n"
    )
    cpu = lock.read("torch==3+cpu --hash=sha256:ff")
    locks = lock.split(complete, cpu, {"greenlet": "1", "torch": "3"})
    assert {name: set(lock.pins(part)) for name, part in locks.items()} == {
        lock.COMMON: {"appnope", "greenlet"},
        lock.CPU: {"torch"},
        lock.PYPI: {"nvidia-nccl", "torch"},
    }
    assert {frozenset(sums) for sums in locks[lock.PYPI].values()} == {frozenset({"cc", "dd"}), frozenset({"ee"})}


def test_hashes_of_a_folder(tmp_path: Path) -> None:
    torch = next(one for one in lock.read("torch==3+cpu"))
    with pytest.raises(SystemExit, match=r"no wheel of torch==3\+cpu"):
        lock.of_folder(tmp_path, torch)
    (tmp_path / "torch-3+cpu-cp311-cp311-linux.whl").write_bytes(b"abc")
    (tmp_path / "torch-4+cpu-cp311-cp311-linux.whl").write_bytes(b"another")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert lock.of_folder(tmp_path, torch) == {torch: {digest}}


# --- the workflows --------------------------------------------------------------------------------------------

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
TESTS = "./.github/workflows/tests.yml"
MAY_WRITE = {
    ("ci.yml", "pages"): {"pages": "write", "id-token": "write"},
    ("release.yml", "index"): {"id-token": "write"},
    ("release.yml", "files"): {"contents": "write"},
}


def workflow_problems(name: str, text: str) -> list[str]:
    """Permissions beyond reading, actions that a tag can change, tokens that stay in the checkout."""
    workflow = yaml.safe_load(text)
    found = []
    if workflow.get("permissions") != {"contents": "read"}:
        found.append("permissions of the workflow must be {contents: read}")
    for job, content in workflow["jobs"].items():
        if content.get("permissions", {}) != MAY_WRITE.get((name, job), {}):
            found.append(f"{job} has permissions of its own: {content.get('permissions')}")
        if content.get("uses") == TESTS:
            continue
        if "timeout-minutes" not in content:
            found.append(f"{job} has no timeout-minutes")
        used = [(step["uses"], step.get("with", {})) for step in content.get("steps", []) if "uses" in step]
        for action, options in [*used, *([(content["uses"], {})] if "uses" in content else [])]:
            if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action):
                found.append(f"{action} is not pinned by its commit")
            elif not re.search(rf"uses: {re.escape(action)} # v\d+\.\d+\.\d+$", text, re.MULTILINE):
                found.append(f"{action} has no comment that names its version")
            if action.startswith("actions/checkout@") and options.get("persist-credentials") is not False:
                found.append("the checkout keeps its token: persist-credentials must be false")
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow(path: Path) -> None:
    assert workflow_problems(path.name, path.read_text("utf8")) == []


def comes_after(workflow: dict[str, Any], job: str) -> set[str]:
    """The jobs that must have succeeded before a job begins."""
    needed = workflow["jobs"][job].get("needs", [])
    direct = {needed} if isinstance(needed, str) else set(needed)
    return direct.union(*(comes_after(workflow, one) for one in direct))


@pytest.mark.parametrize(("name", "job"), MAY_WRITE)
def test_what_publishes_comes_after_all_tests(name: str, job: str) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text("utf8"))
    before = comes_after(workflow, job)
    assert [one for one in before if workflow["jobs"][one].get("uses") == TESTS] == ["tests"]
    runs = [step.get("run", "") for step in workflow["jobs"][job]["steps"]]
    assert not [run for run in runs if re.search(r"python|make|pip|npm", run)], "it runs code of ours, or of others"


def test_every_week_with_what_is_newest() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "weekly.yml").read_text("utf8"))
    assert workflow[True]["schedule"][0]["cron"].endswith(" * * 1")  # YAML 1.1 reads the key `on` as true
    assert workflow["jobs"]["tests"] == {"uses": TESTS}
    install, *_ = [step["run"] for step in workflow["jobs"]["newest"]["steps"] if "pip install" in step.get("run", "")]
    assert "==" not in install
    assert "constraint" not in install


def test_every_python_of_the_project_is_tested() -> None:
    """The lowest one with the lowest PyTorch too."""
    jobs = yaml.safe_load((ROOT / TESTS).read_text("utf8"))["jobs"]
    told = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf8"))
    versions = [
        str(step["with"]["python-version"])
        for name in ("everything", "floor")
        for step in jobs[name]["steps"]
        if "python-version" in step.get("with", {})
    ]
    assert versions == ["3.11", told[0]]
    assert sorted([*jobs["package"]["strategy"]["matrix"]["python"], "3.11"]) == sorted(told)
    (torch,) = re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text("utf8"))
    assert f'"torch=={torch}.' in str(jobs["floor"]["steps"])


def test_one_version_of_each_action() -> None:
    used = {use for path in WORKFLOWS for use in re.findall(r"uses: (\S+ # \S+)", path.read_text("utf8"))}
    assert len(used) == len({use.split("@")[0] for use in used}) >= 4


def test_workflow_problems_are_seen() -> None:
    bad = """
permissions: {contents: read, pages: write}
jobs:
  a:
    permissions: {contents: write}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97
  b: {uses: owner/repository/.github/workflows/x.yml@main, timeout-minutes: 1}
"""
    assert workflow_problems("bad.yml", bad) == [
        "permissions of the workflow must be {contents: read}",
        "a has permissions of its own: {'contents': 'write'}",
        "a has no timeout-minutes",
        "actions/checkout@v4 is not pinned by its commit",
        "the checkout keeps its token: persist-credentials must be false",
        "actions/setup-python@5fda3b95a4ea91299a34e894583c3862153e4b97 has no comment that names its version",
        "owner/repository/.github/workflows/x.yml@main is not pinned by its commit",
    ]
    assert "permissions of the workflow" in workflow_problems("bad.yml", "jobs: {}")[0]


def test_dependencies_are_audited_every_week() -> None:
    text = (ROOT / ".github" / "workflows" / "audit.yml").read_text("utf8")
    workflow = yaml.safe_load(text)
    assert len(workflow[True]["schedule"][0]["cron"].split()) == 5  # YAML 1.1 reads the key `on` as true
    assert workflow[True]["schedule"][0]["cron"].endswith(" * * 1"), "on one day of the week"
    command = next(
        step["run"] for step in workflow["jobs"]["dependencies"]["steps"] if "--strict" in step.get("run", "")
    )
    assert re.findall(r"--requirement (\S+)", command) == [lock.COMMON, lock.PYPI]


# --- risky calls ----------------------------------------------------------------------------------------------

SCANNED = ("rope_lessons", "experiments", "tools")
# {(file, what): why it is right there}. What is no longer there has to go from here too.
ALLOWED = {
    (
        "rope_lessons/models/pretrained.py",
        ".from_pretrained()",
    ): "the model that the caller names: only where one is asked for",
    ("rope_lessons/hf/live.py", ".from_pretrained()"): "the folder that the caller names, without code of its own",
    ("tools/release.py", "shutil.unpack_archive()"): "the archive that it has just written",
    ("experiments/gpu/cells.py", "compile()"): "the cells of the book's own notebooks, where there is no Jupyter",
    ("experiments/gpu/cells.py", "exec()"): "the same",
    ("experiments/gpu/cells.py", "eval()"): "the same: the last line of a cell, whose value is shown",
    ("experiments/gpu/notebooks.py", ".extractall()"): "the wheel that it has just built",
    ("rope_lessons/lab/text.py", "urllib.request.Request()"): "the corpus that the caller names",
    ("rope_lessons/lab/text.py", "urllib.request.urlopen()"): "the same; https, with a SHA-256 in the source",
}
MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "ftplib", "telnetlib", "smtplib"}
# Full names of what is called.
CALLS = re.compile(
    r"eval|exec|compile|__import__|builtins\..*|os\.(system|popen|exec\w*|spawn\w*)|subprocess\.get\w*output|torch\.hub\..*"
    r"|yaml\.(?!safe_|dump|\w*Error)\w+|pandas\.read_pickle|shutil\.unpack_archive|tempfile\.mktemp|ssl\._.*"
    r"|(urllib\.request|urllib3|requests|httpx|aiohttp|http\.client|socket|huggingface_hub)\..*"
)
METHODS = {"extract", "extractall", "from_pretrained", "read_pickle", "to_pickle"}
PROGRAMS = re.compile(r"subprocess\.(run|call|check_call|check_output|Popen)|asyncio\.create_subprocess_shell")
# {keyword: the values that are safe}
KEYWORDS: dict[str, tuple[Any, ...]] = {
    "shell": (False,),
    "allow_pickle": (False,),
    "trust_remote_code": (False,),
    "weights_only": (True,),
    "verify": (True,),
}
NOT_ENCRYPTED = re.compile(
    r"(http|ftp)://(?!localhost\b|127\.0\.0\.1\b|www\.w3\.org/)"
)  # w3.org: names of XML, not pages


def imported_names(tree: ast.AST) -> dict[str, str]:
    """{name in the file: full name}."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def names_of_lists(tree: ast.AST) -> set[str]:
    """The names that are set to a list, ``command = ["git", …]``."""
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)]
    return {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def risks_of_a_call(node: ast.Call, names: dict[str, str], lists: set[str]) -> set[str]:
    first, _, rest = ast.unparse(node.func).partition(".")
    name = f"{names.get(first, first)}.{rest}".rstrip(".")
    keywords = {one.arg: one.value for one in node.keywords}
    safe = {
        key
        for key, value in keywords.items()
        if isinstance(value, ast.Constant) and value.value in KEYWORDS.get(key or "", ())
    }
    found = {f"{key}={ast.unparse(value)}" for key, value in keywords.items() if key in KEYWORDS and key not in safe}
    if name == "torch.load":
        found.add("torch.load(weights_only=True)" if "weights_only" in safe else "torch.load()")
    elif CALLS.fullmatch(name):
        found.add(f"{name}()")
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        found.add(f".{node.func.attr}()")
    if PROGRAMS.fullmatch(name):
        command = node.args[0] if node.args else None
        if not isinstance(command, ast.List) and not (isinstance(command, ast.Name) and command.id in lists):
            found.add(f"{name}() without a list")
    return found


def risks(source: str) -> set[str]:
    """What a reader of the code would have to look at twice."""
    tree = ast.parse(source)
    names, lists = imported_names(tree), names_of_lists(tree)
    found = {f"import {name}" for name in names.values() if name.split(".")[0] in MODULES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found |= risks_of_a_call(node, names, lists)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NOT_ENCRYPTED.search(node.value):
            found.add("an address without https")
    return found


def test_risky_calls_are_known() -> None:
    files = [path for folder in SCANNED for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 80
    found = {(path.relative_to(ROOT).as_posix(), risk) for path in files for risk in risks(path.read_text("utf8"))}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("eval('1')", "eval()"),
        ("exec(x)", "exec()"),
        ("import pickle", "import pickle"),
        ("from joblib import load", "import joblib.load"),
        ("import torch as t; t.load(f)", "torch.load()"),
        ("from torch import load; load(f, weights_only=True)", "torch.load(weights_only=True)"),
        ("import torch; torch.load(f, weights_only=False)", "torch.load()"),
        ("import torch; torch.hub.load('a', 'b')", "torch.hub.load()"),
        ("import numpy as np; np.load(f, allow_pickle=True)", "allow_pickle=True"),
        ("import yaml; yaml.load(f, Loader)", "yaml.load()"),
        ("from yaml import unsafe_load as load; load(f)", "yaml.unsafe_load()"),
        ("import os; os.system(x)", "os.system()"),
        ("import subprocess as s; s.run(['ls'], shell=True)", "shell=True"),
        ("import subprocess; subprocess.run(['ls'], shell=flag)", "shell=flag"),
        ("import subprocess; subprocess.run(f'ls {x}')", "subprocess.run() without a list"),
        ("import subprocess; command = 'ls'; subprocess.run(command)", "subprocess.run() without a list"),
        ("from subprocess import Popen; Popen(args='ls')", "subprocess.Popen() without a list"),
        ("archive.extractall(folder)", ".extractall()"),
        ("import tarfile; tarfile.open(x).extract(y)", ".extract()"),
        ("import shutil; shutil.unpack_archive(x)", "shutil.unpack_archive()"),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", "trust_remote_code=True"),
        ("import urllib.request; urllib.request.urlretrieve(x)", "urllib.request.urlretrieve()"),
        ("import requests; requests.get(x, verify=False)", "verify=False"),
        ("address = 'http://example.org/x.zip'", "an address without https"),
        ("address = f'http://{host}/x.zip'", "an address without https"),
    ],
)
def test_risks_are_seen(source: str, expected: str) -> None:
    assert expected in risks(source)


def test_harmless_calls_are_not_risks() -> None:
    harmless = """
import re, subprocess, numpy as np, torch, yaml
model.eval(); re.compile("x"); torch.compile(f); np.load(f); np.load(f, allow_pickle=False); yaml.safe_load(t)
subprocess.run(["ls"], shell=False); command = ["ls"]; subprocess.run(command); "http://localhost:80"; 'xmlns="http://www.w3.org/2000/svg"'
"""
    assert risks(harmless) == set()


# --- no connection --------------------------------------------------------------------------------------------

PROGRAM = """
import sys
asked = []
watched = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.getnameinfo",
           "socket.gethostbyname", "socket.gethostbyaddr", "urllib.Request"}
sys.addaudithook(lambda event, arguments: asked.append(event) if event in watched else None)

import importlib, pkgutil
import rope_lessons as rl
names = [one.name for one in pkgutil.walk_packages(rl.__path__, "rope_lessons.") if not one.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
import torch
for length in (8, 600):  # dense, and on the fused kernels
    for scheme in (rl.scheme("rope", dim=8), rl.scheme("rerope", dim=8, window=4)):
        rl.attention(*torch.randn(3, 1, 2, length, 8), scheme)
print(len(names), sorted(set(asked)))

import socket
with socket.socket() as one:
    one.settimeout(1)
    one.connect_ex(("127.0.0.1", 9))
socket.getaddrinfo("localhost", 80)
print(sorted(set(asked)))
"""


def test_no_connection() -> None:
    """Neither importing every module nor an attention call connects to a host or asks for its address."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    quiet, afterwards = done.stdout.splitlines()
    modules, asked = quiet.split(" ", 1)
    assert int(modules) > 60
    assert asked == "[]"
    assert afterwards == "['socket.connect', 'socket.getaddrinfo']", "the hook sees a connection"
