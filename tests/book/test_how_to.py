"""The recipes of book/how_to.md: what the page only shows runs here, and what it prints is held to be small."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import execution

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "book" / "how_to.md"
TEXT = PAGE.read_text("utf8")
CELLS = re.findall(r"```\{code-cell\} ipython3\n(.*?)```", TEXT, re.DOTALL)
SHARDED = """\
for block in model.blocks:
    fully_shard(block)
fully_shard(model)  # or: model = nn.parallel.DistributedDataParallel(model)
"""


@pytest.mark.parametrize("parallel", ["fsdp", "ddp"])
def test_several_cards(tmp_path, parallel):
    """The program that the page puts together, with two processes: both learn."""
    (program,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert SHARDED in program
    if parallel == "ddp":
        program = program.replace(SHARDED, "model = nn.parallel.DistributedDataParallel(model)\n")
    (model,) = (cell for cell in CELLS if "class Model" in cell)
    (tmp_path / "train.py").write_text("\n".join([CELLS[0], model, program]), "utf8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    losses = dict(re.findall(r"process (\d): ([\d.]+) nats", done.stdout))
    assert set(losses) == {"0", "1"}
    assert all(float(loss) < 1.5 for loss in losses.values())  # chance is 3.47


def test_what_the_page_prints():
    cells = [cell for cell in execution.execute(PAGE, ROOT).cells if cell.cell_type == "code"]
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    differences = [float(number) for number in re.findall(r"difference (\S+)", printed)]
    assert len(differences) == 3
    assert max(differences) < 1e-5
    assert "document_ids must be None with a cache" in printed.replace("\n", " ")
    assert "0 breaks" in printed
    home, long, changed = (float(loss) for loss in re.findall(r"([\d.]+) nats", printed))
    assert max(home, long, changed) < 1.0
    assert "\nflash: " in printed
