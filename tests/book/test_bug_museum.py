"""The bug museum: each exhibit has its thread, its numbers and a test; what it says of this package holds."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, Olmo3Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.olmo3.modeling_olmo3 import Olmo3RotaryEmbedding

import rope_lessons as rl
from rope_lessons.exercises import bug_museum, check
from rope_lessons.figures import museum
from tools import execution, reading
from tools.myst import Directive, Text, tags, walk
from tools.project import ROOT

PAGE = ROOT / "book" / "bug_museum.md"
TEXT = PAGE.read_text("utf8")
EXHIBITS = dict(re.findall(r"^## (\d+\. [^\n]+)\n(.*?)(?=^## )", TEXT, re.DOTALL | re.MULTILINE))
LABELS = ("What happened.", "What was seen.", "The test.", "Ruled out here.")
LINK = re.compile(r"\[([\w./-]+ )?#(\d+)\]\(https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)\)")
CELLS = [block for block in walk(TEXT, 1, PAGE) if isinstance(block, Directive) and block.name == "code-cell"]
each_exhibit = pytest.mark.parametrize("title", EXHIBITS)


# --- the form ---------------------------------------------------------------------------------------------------------


def test_twelve_exhibits_as_in_the_table() -> None:
    assert list(museum.exhibits()) == [title.replace(".", "", 1) for title in EXHIBITS]
    assert len(EXHIBITS) == 12


@each_exhibit
def test_an_exhibit_has_all_its_labels(title: str) -> None:
    body = EXHIBITS[title]
    assert re.findall(r"^\*\*(.+?)\*\*", body, re.MULTILINE) == list(LABELS)
    cells = [c for c in walk(body, 1, PAGE) if isinstance(c, Directive) and c.name == "code-cell"]
    shown = [cell for cell in cells if not tags(cell)]
    assert shown
    for cell in shown:
        assert len([line for line in cell.body.splitlines() if line.strip()]) <= 10


@each_exhibit
def test_an_exhibit_has_its_thread(title: str) -> None:
    """In what happened, with the number and the repository that the link has."""
    happened = EXHIBITS[title].split("**What was seen.**")[0]
    links = LINK.findall(happened)
    assert links
    assert happened.count("https://") == len(links)
    last = ""
    for repository, number, linked, linked_number in links:
        assert number == linked_number
        last = repository.strip() or last  # a second thread of the same repository is a number alone
        assert last == linked


@functools.cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@each_exhibit
def test_the_named_tests_exist(title: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", EXHIBITS[title].split("**The test.**")[1])
    assert named
    for path, name in named:
        assert name in functions_of(path), f"{path}::{name}"


def test_it_is_short_and_narrow() -> None:
    prose = " ".join(block.text for block in walk(TEXT, 1, PAGE) if isinstance(block, Text))
    assert 1000 < len(re.sub(r"\(http[^)]*\)", "", prose).split()) < 2500
    assert reading.minutes(PAGE)
    assert max(len(line) for cell in CELLS for line in cell.body.splitlines() if "caption:" not in line) <= 76


# --- the numbers ------------------------------------------------------------------------------------------------------


@functools.cache
def printed() -> str:
    cells = [cell for cell in execution.execute(PAGE, ROOT).cells if cell.cell_type == "code"]
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs)


@functools.cache
def names_of_the_page() -> dict[str, Any]:
    """What the page's cells define, run here without the pictures."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in CELLS:
            if "rl.figures." not in cell.body:
                exec(re.sub(r"^(---.*?---\n|:tags:.*\n)", "", cell.body, flags=re.DOTALL), names)
    return names


def numbers(pattern: str) -> list[float]:
    found = re.search(pattern, printed())
    assert found, pattern
    return [float(number) for number in found.groups()]


def test_1_the_rounded_table() -> None:
    """The first number is the one in gpt-neox #1003."""
    assert numbers(r"float16: off by ([\d.]+)") == [0.7819]
    assert numbers(r"here:    off by (\S+)")[0] < 6e-8
    assert museum.exhibits()["1 The table that was rounded"][1] == "position 239"
    cos, sin = rl.rotary_table(torch.arange(4), rl.rope_frequencies(8))
    with pytest.raises(TypeError, match="cos and sin must both be float32 or both float64"):
        rl.rotary.rotate(torch.zeros(4, 8), cos.half(), sin.half(), layout="half")


def test_2_the_picture_of_one_colour() -> None:
    """Steps of 512 at 65,536, and the first that merges at 257; 2,049 in TF32, which has float16's digits."""
    assert "bfloat16 keeps 1 of 64 columns apart" in printed()
    assert "here     keeps 64 of 64 columns apart" in printed()
    assert torch.arange(65_536, 131_072).bfloat16().unique().diff().unique().tolist() == [512]
    assert museum.exhibits()["2 The picture of one colour"][1] == "position 257"
    with pytest.raises(TypeError, match="positions must be int64"):
        rl.rotary_table(torch.arange(4).bfloat16(), rl.rope_frequencies(8))


def test_3_the_wrong_partner() -> None:
    low, high = numbers(r"5 tokens apart: from (-?[\d.]+) to (-?[\d.]+)")
    assert high - low > 3
    wrong, right = museum.partner_scores()
    assert right.max() - right.min() < 1e-5 < 1 < wrong.max() - wrong.min()
    with pytest.raises(TypeError, match="layout"):
        rl.apply_rotary(torch.zeros(1, 8), torch.arange(1), rl.rope_frequencies(8))  # type: ignore[call-arg]


def test_4_the_width_of_the_head() -> None:
    assert numbers(r"position  0: off by ([\d.]+)\nposition  1: off by ([\d.]+)\nposition 10: off by ([\d.]+)") == [
        0.0, 0.47, 2.0,
    ]  # fmt: skip


def test_5_the_lost_theta() -> None:
    assert numbers(r"distance   1: off by ([\d.]+)\ndistance  10: off by ([\d.]+)") == [0.13, 1.21]
    assert "FrequencySpec('rope', dim=128, base=500000.0)" in printed()
    assert "500000" in repr(rl.scheme("rope", dim=128, base=5e5))
    config = {"num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 2}
    with pytest.raises(ValueError, match="rope_thta"):
        rl.plan_from_hf({**config, "rope_parameters": {"rope_type": "default", "rope_thta": 5e5}})


def test_6_yarn_in_the_wrong_layers() -> None:
    times, apart = numbers(r"in a sliding layer: logits times ([\d.]+),\nand off by ([\d.]+)")
    assert (times, apart) == (1.46, 1.11)


@pytest.mark.filterwarnings("ignore")
def test_6_each_type_of_layer_has_its_own_in_the_transformers_that_is_installed() -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 8192}
    plain = {"rope_type": "default", "rope_theta": 5e5}
    config = Olmo3Config(
        num_hidden_layers=4, rope_parameters={"full_attention": yarn, "sliding_attention": plain}, hidden_size=128,
        num_attention_heads=1, max_position_embeddings=65_536,
    )  # fmt: skip
    rotary = Olmo3RotaryEmbedding(config)
    assert config.layer_types == ["sliding_attention"] * 3 + ["full_attention"]
    torch.testing.assert_close(
        rotary.sliding_attention_inv_freq, rl.rope_frequencies(128, 5e5).float(), rtol=1e-5, atol=0
    )
    plan = rl.plan_from_hf(config)
    assert [layer.frequencies.kind for layer in plan if layer.frequencies] == ["rope"] * 3 + ["yarn"]
    assert [layer.rotary_scale > 1 for layer in plan] == [False] * 3 + [True]


def test_7_the_squared_factor() -> None:
    """The two numbers of sglang #33558."""
    assert numbers(r"factor: ([\d.]+), and squared ([\d.]+)") == [1.4852, 2.2058]
    assert rl.scheme("yarn", dim=8, factor=8, train_length=64, rotary_scale=1.5).rotary_scale == 1.5


def test_8_the_stale_keys() -> None:
    assert numbers(r"stale: off by ([\d.]+)\nhere: off by ([\d.]+)") == [0.36, 0.0]
    assert museum.exhibits()["8 The stale keys"][1] == "length 2,050"


def test_9_the_long_text() -> None:
    assert numbers(r"token 99 of the short text: off by ([\d.]+)") == [2.0]


def test_a_long_text_leaves_no_trace() -> None:
    """Short, long, and the short one again, in the function, in the module and in attention."""
    spec = rl.FrequencySpec("dynamic-ntk", dim=16, train_length=32, factor=2.0)
    scheme = rl.scheme("dynamic-ntk", dim=16, train_length=32, factor=2.0)
    module, attend = rl.nn.RotaryEmbedding(spec), rl.nn.Attention(scheme)
    for short in (20, 40):  # within the training length, and beyond it
        x, long = torch.randn(1, 1, short, 16), torch.randn(1, 1, 200, 16)
        first = spec(length=short), module(x), attend(x, x, x)
        spec(length=200), module(long), attend(long, long, long)
        for before, after in zip(first, (spec(length=short), module(x), attend(x, x, x)), strict=True):
            assert torch.equal(before, after)
        assert not torch.equal(spec(length=short), spec(length=200))


def test_10_the_table_under_a_wrong_name() -> None:
    assert "[5, 5, 5]" in printed()
    assert museum.exhibits()["10 The table under a wrong name"][1] == "new token 2"


def test_11_one_key_too_many() -> None:
    assert "here: 4 keys\ni - j <= 4: 5 keys" in printed()
    assert museum.exhibits()["11 One key too many"][1] == "length 4,097"
    q, k = torch.randn(2, 1, 1, 12, 8)
    for backend in ("reference", "flash", "flex"):
        scheme = rl.scheme("window", dim=8, visible_window=4)
        weights = rl.attention(q, k, torch.eye(12)[None, None], scheme, backend=backend)
        assert (weights[0, 0, -1] > 0).sum() == 4, backend


def test_12_the_memory_that_nobody_wrote() -> None:
    assert "a checkpoint holds []" in printed()
    assert "here: [1.0, 0.1, 0.01, 0.001]" in printed()
    assert list(rl.nn.RotaryEmbedding(rl.FrequencySpec("rope", dim=8)).buffers()) == []


def test_where_each_begins() -> None:
    """The table, by hand: an error of a tenth in some pair."""
    begins = {name.split(" ")[0]: begin for name, (_, begin) in museum.exhibits().items()}
    assert begins == {
        "1": "position 239", "2": "position 257", "3": "position 1", "4": "position 1", "5": "distance 1",
        "6": "distance 0", "7": "distance 0", "8": "length 2,050", "9": "position 2", "10": "new token 2",
        "11": "length 4,097", "12": "position 1",
    }  # fmt: skip
    for name, off in (("1", museum._rounded), ("2", museum._merged)):
        position = int(begins[name].split()[1])
        assert off(torch.arange(position)).max() <= museum.WRONG_FROM < off(torch.tensor([position]))
    ours = museum.worst_so_far(len(museum.LINES) - 1, 4096)
    assert ours[-1] < 1e-7


# --- the list of questions, and the exercise --------------------------------------------------------------------------


@pytest.fixture
def examine() -> Callable[..., list[str]]:
    return names_of_the_page()["examine"]


@pytest.mark.parametrize("name", bug_museum.WRONG)
def test_the_questions_find_it(name: str, examine: Callable[..., list[str]]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        assert examine(bug_museum.WRONG[name](), bug_museum.OMEGA, bug_museum.HEAD)


def test_every_question_finds_something(examine: Callable[..., list[str]]) -> None:
    found = [set(examine(make(), bug_museum.OMEGA, bug_museum.HEAD)) for make in bug_museum.WRONG.values()]
    assert len(set().union(*found)) == 6


@pytest.mark.parametrize("name", bug_museum.RIGHT)
def test_the_questions_find_nothing_in_what_is_right(name: str, examine: Callable[..., list[str]]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        assert examine(bug_museum.RIGHT[name](), bug_museum.OMEGA, bug_museum.HEAD) == []


def test_the_questions_find_nothing_in_transformers(examine: Callable[..., list[str]]) -> None:
    """Llama's own rotation, with YaRN's factor too; and the factor twice is found."""
    for rope in (
        {"rope_type": "default"},
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192},
    ):
        config = LlamaConfig(
            head_dim=64, max_position_embeddings=65_536, rope_parameters={"rope_theta": 5e5, **rope}
        )  # fmt: skip
        rotary = LlamaRotaryEmbedding(config)

        def rotate(x: Tensor, positions: Tensor, rotary: LlamaRotaryEmbedding = rotary) -> Tensor:
            cos, sin = (table[0] for table in rotary(x[None], positions[None]))
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat((-b, a), -1) * sin

        layer = rl.scheme_from_hf(dict(config.rope_parameters or {}), head_dim=64)
        assert layer.frequencies is not None
        omega = layer.frequencies()
        assert examine(rotate, omega, 64, layer.rotary_scale) == []
        if layer.rotary_scale > 1:
            twice = examine(lambda x, m, of=rotate, nu=layer.rotary_scale: nu * of(x, m), omega, 64, layer.rotary_scale)
            assert "position 0 turns nothing" in twice


def test_the_questions_pass_the_exercise(examine: Callable[..., list[str]]) -> None:
    def test(rotate: Callable[[Tensor, Tensor], Tensor]) -> None:
        assert not examine(rotate, bug_museum.OMEGA, bug_museum.HEAD)

    assert check("bug_museum.test", test)


def test_what_the_text_says_of_the_exercise() -> None:
    """A comparison with the definition, near and far, finds eight of nine; the relative property four."""
    assert (len(bug_museum.RIGHT), len(bug_museum.WRONG)) == (3, 9)

    def without_the_third(rotate: Callable[[Tensor, Tensor], Tensor]) -> None:
        for start in (0, 65_537):
            x, positions = torch.randn(4, 64), start + torch.arange(4)
            wanted = rl.apply_rotary(x, positions, bug_museum.OMEGA, layout="half")
            assert ((rotate(x, positions) - wanted).norm(dim=-1) < 0.01 * x.norm(dim=-1)).all()

    assert check("bug_museum.test", without_the_third).message.startswith("1 of 9 slipped through: the long text")
    assert check("bug_museum.test", bug_museum._relative).message.startswith("5 of 9 slipped through")


def test_a_test_that_cannot_be_run_says_so() -> None:
    message = check("bug_museum.test", lambda rotate: rotate(torch.zeros(3, 8), torch.arange(3))).message
    assert message.startswith("rotate takes vectors of shape (tokens, 64)")
    assert "your answer raised ZeroDivisionError" in check("bug_museum.test", lambda rotate: 1 / 0).message
