"""The README's picture is the book's: same size, and its alt text stands in the README. Its examples are doctests; what
needs a model from the hub runs here, on a small one."""

from __future__ import annotations

import re
import struct

import pytest
import transformers

import rope_lessons as rl
from tools import picture
from tools.project import ROOT


def size(png: bytes) -> tuple[int, int]:
    return struct.unpack(">II", png[16:24])


def test_picture() -> None:
    figure = picture.picture()
    assert f"![{figure.alt}]({picture.PATH.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf8")
    assert size(figure.png()) == size(picture.PATH.read_bytes())


def test_commands_are_those_of_the_makefile() -> None:
    """The raw commands in the README are what the Makefile runs."""
    readme, makefile = ((ROOT / name).read_text("utf8") for name in ("README.md", "Makefile"))
    commands = re.findall(r"^python -m ((?:pytest|tests).*)$", readme, re.MULTILINE)
    assert len(commands) == 3
    assert commands == re.findall(r"^\t\$\(TEST\) (.*)$", makefile, re.MULTILINE)


def test_a_pretrained_model(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    small = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=50, **sizes))
    own = rl.hf.plan_of(small)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", lambda name: small)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf8"), re.DOTALL)
    (program,) = (block for block in blocks if ">>>" not in block)
    exec(program, {})
    assert rl.hf.plan_of(small) == tuple(layer.replace(window=512, slope=0.0) for layer in own)
    assert rl.hf.plan_of(rl.hf.restore(small)) == own
