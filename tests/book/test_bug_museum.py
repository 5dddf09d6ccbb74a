"""The bug museum: each exhibit has its thread, its numbers and a test; what it says of this package holds."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import math
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
from tools import execution, project, reading
from tools.myst import Directive, Text, tags, walk
from tools.project import ROOT

PAGE = ROOT / "book" / "bug_museum.md"
TEXT = PAGE.read_text("utf8")
EXHIBITS = dict(re.findall(r"^## (\d+\. [^\n]+)\n(.*?)(?=^## )", TEXT, re.DOTALL | re.MULTILINE))
LABELS = ("What happened.", "What was seen.", "Why no error.", "The test.", "Ruled out here.")
BOLD = ("Round late.",)  # within an exhibit
TESTS = f"{project.address()}/blob/{project.branch()}/tests/"
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
    assert [bold for bold in re.findall(r"^\*\*(.+?)\*\*", body, re.MULTILINE) if bold not in BOLD] == list(LABELS)
    cells = [c for c in walk(body, 1, PAGE) if isinstance(c, Directive) and c.name == "code-cell"]
    shown = [cell for cell in cells if not tags(cell)]
    assert shown
    for cell in shown:
        assert len([line for line in cell.body.splitlines() if line.strip()]) <= 10


def test_what_kept_them_silent_has_a_few_kinds() -> None:
    """The third column of the table is short, and kinds return."""
    kinds = [silent for _, silent, _ in museum.exhibits().values()]
    assert len(set(kinds)) < len(kinds)
    assert all(len(kind.split()) <= 6 for kind in kinds)


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
    named = re.findall(r"\[`(test_\w+)`\]\((https://[^)]*)\)", EXHIBITS[title].split("**The test.**")[1])
    assert named
    for name, address in named:
        assert address.startswith(TESTS)
        path = f"tests/{address.removeprefix(TESTS)}"
        assert name in functions_of(path), f"{path}::{name}"


def test_the_test_that_is_shown_is_the_one_that_runs() -> None:
    shown = re.search(r"All of it:\n\n```python\n(.*?)```", TEXT, re.DOTALL)
    assert shown
    source = ast.parse((ROOT / "tests/test_cache.py").read_text("utf8"))
    real = next(node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "test_every_split")
    named = ast.unparse(ast.Module(real.body[2:], type_ignores=[])).replace(
        ", strict=False", ""
    )  # after its text and the line of settings
    assert ast.unparse(ast.parse(shown[1])) == named
    assert len(shown[1].splitlines()) == 7


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
def names_of_the_page(until: str = "") -> dict[str, Any]:
    """What the page's cells define, run here without the pictures: all, or up to the cell that defines a name."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in CELLS:
            if "rl.figures." not in cell.body and (not until or until not in names):
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
    assert museum.exhibits()["1 The angle that was rounded"][-1] == "position 239"
    cos, sin = rl.rotary_table(torch.arange(4), rl.rope_frequencies(8))
    with pytest.raises(TypeError, match="cos and sin must both be float32 or both float64"):
        rl.rotary.rotate(torch.zeros(4, 8), cos.half(), sin.half(), layout="half")


def test_1_round_late() -> None:
    """Of the three places to round one does no harm, at any position; by plain loops where it begins."""
    found = museum.rounding()
    (_, positions, merged), (_, angles, same), (worst, never, apart) = found.values()
    assert (positions, merged, angles, same) == (257, 257, 40, 2567)
    assert (never, apart) == (None, None)
    assert worst < 0.003
    assert worst == pytest.approx(2**-9 * 2**0.5, rel=0.01)  # half a step of bfloat16 in both: a part in 500
    omega = rl.rope_frequencies(128)
    for m in range(1, 2568):
        here, before = ((n * omega).bfloat16() for n in (m, m - 1))
        assert torch.equal(here, before) is (m == 2567), m
    assert "off by a part in 500, at any position" in TEXT
    assert museum.rounding(8192)["cosines and sines"][0] == pytest.approx(worst, rel=0.02)


def test_2_the_picture_of_one_colour() -> None:
    """Steps of 512 at 65,536, and the first that merges at 257; 2,049 in TF32, which has float16's digits."""
    assert "bfloat16 keeps 1 of 64 columns apart" in printed()
    assert "here     keeps 64 of 64 columns apart" in printed()
    assert torch.arange(65_536, 131_072).bfloat16().unique().diff().unique().tolist() == [512]
    assert museum.exhibits()["2 The picture of one colour"][-1] == "position 257"
    with pytest.raises(TypeError, match="positions must be int64"):
        rl.rotary_table(torch.arange(4).bfloat16(), rl.rope_frequencies(8))


def test_3_the_wrong_partner() -> None:
    low, high = numbers(r"5 tokens apart: from (-?[\d.]+) to (-?[\d.]+)")
    assert high - low > 3
    names = names_of_the_page("scores")
    figure = museum.museum_partners(names["scores"], names["q"], names["k"], names["omega"])
    assert f"jumps between {low:.2f} and {high:.2f}" in figure.alt
    wrong, right = (torch.tensor(line.get_ydata()).tolist() for line in figure.figure.axes[0].lines)
    assert max(right) - min(right) < 1e-5 < 1 < max(wrong) - min(wrong)
    with pytest.raises(TypeError, match="layout"):
        rl.apply_rotary(torch.zeros(1, 8), torch.arange(1), rl.rope_frequencies(8))  # type: ignore[call-arg]


def test_4_the_width_of_the_head() -> None:
    assert numbers(r"position  0: off by ([\d.]+)\nposition  1: off by ([\d.]+)\nposition 10: off by ([\d.]+)") == [
        0.0, 0.47, 2.0,
    ]  # fmt: skip


def test_5_the_lost_theta() -> None:
    assert numbers(r"distance   1: off by ([\d.]+)\ndistance  10: off by ([\d.]+)") == [0.13, 1.21]
    assert "in the old place: 10000\nFrequencySpec('rope', dim=128, base=500000.0)" in printed()
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
    """The two numbers of sglang #33558, and what TensorRT-LLM's logarithm makes of the first."""
    assert numbers(r"the factor: ([\d.]+), .*\ntimes its own: ([\d.]+), ") == [1.4852, 2.2058]
    [third] = numbers(r"in the logarithm: ([\d.]+), ")
    assert third == pytest.approx(1 + 0.1 * 1.4852 * math.log(128), abs=1e-4)
    assert rl.scheme("yarn", dim=8, factor=8, train_length=64, rotary_scale=1.5).rotary_scale == 1.5


def test_8_the_stale_keys() -> None:
    assert numbers(r"stale: off by ([\d.]+)\nhere: off by ([\d.]+)") == [0.36, 0.0]
    assert museum.exhibits()["8 The stale keys"][-1] == "length 2,050"


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
    assert museum.exhibits()["10 The table under a wrong name"][-1] == "new token 2"


def test_11_one_key_too_many() -> None:
    assert "here: 4 keys\ni - j <= 4: 5 keys" in printed()
    assert museum.exhibits()["11 One key too many"][-1] == "length 4,097"
    q, k = torch.randn(2, 1, 1, 12, 8)
    for backend in ("reference", "flash", "flex"):
        scheme = rl.scheme("window", dim=8, visible_window=4)
        weights = rl.attention(q, k, torch.eye(12)[None, None], scheme, backend=backend)
        assert (weights[0, 0, -1] > 0).sum() == 4, backend


def test_12_the_memory_that_nobody_wrote() -> None:
    assert "a checkpoint holds []\nthe mend calls None" in printed()
    assert "here: [1.0, 0.1, 0.01, 0.001]" in printed()
    assert list(rl.nn.RotaryEmbedding(rl.FrequencySpec("rope", dim=8)).buffers()) == []


def test_where_each_begins() -> None:
    """The table, by hand: an error of a tenth in some pair."""
    begins = {name.split(" ")[0]: begin for name, (*_, begin) in museum.exhibits().items()}
    assert begins == {
        "1": "position 239", "2": "position 257", "3": "position 1", "4": "position 1", "5": "distance 1",
        "6": "distance 0", "7": "distance 0", "8": "length 2,050", "9": "position 2", "10": "new token 2",
        "11": "length 4,097", "12": "position 1",
    }  # fmt: skip
    for name, off in (("1", museum._rounded), ("2", museum._merged)):
        position = int(begins[name].split()[1])
        assert off(torch.arange(position)).max() <= museum.WRONG_FROM < off(torch.tensor([position]))
    lines = {name: museum.worst_so_far(number, 4096) for number, (name, *_) in enumerate(museum.LINES)}
    assert lines["angles in float64"][-1] < 1e-7
    assert float(lines["6 YaRN in a plain layer"][0]) == pytest.approx(0.2, abs=0.01)
    assert "Exhibit 6 begins at 0.2" in TEXT


def test_when_keys_are_stale_and_when_that_is_more_than_a_tenth() -> None:
    m, old = torch.arange(2048)[:, None], rl.dynamic_ntk_frequencies(128, 2048, 2048, 2.0)
    off = [
        float(museum.moved(m * old, m * rl.dynamic_ntk_frequencies(128, length, 2048, 2.0)).max())
        for length in (2048, 2049, 2050)
    ]
    assert off[0] == 0 < off[1] < 0.1 < off[2]
    assert "From length 2,049 on the first are stale, from 2,050 on one is off by more than a tenth." in TEXT


# --- the list of questions, and the exercise --------------------------------------------------------------------------


@pytest.fixture
def examine() -> Callable[..., list[str]]:
    return names_of_the_page()["examine"]


@pytest.mark.parametrize("name", bug_museum.WRONG)
def test_the_questions_find_it(name: str, examine: Callable[..., list[str]]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        assert examine(bug_museum.WRONG[name](), bug_museum.OMEGA, bug_museum.HEAD)


def test_the_third_question_finds_all_nine(examine: Callable[..., list[str]]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        for make in bug_museum.WRONG.values():
            assert "many steps are, too" in examine(make(), bug_museum.OMEGA, bug_museum.HEAD)
    assert "The third question, a comparison with the definition far away, finds all nine." in TEXT


def test_the_grid_says_what_the_questions_found() -> None:
    found = names_of_the_page()["found"]
    assert list(found) == [*bug_museum.WRONG, "ours, half", "ours, interleaved"]
    rows = museum.museum_grid(found).rows
    assert set(museum.QUESTIONS) == set().union(*found.values())
    for name, cells in zip(found, rows.values(), strict=True):
        assert [cell == "●" for cell in cells] == [question in found[name] for question in museum.QUESTIONS]
    assert not found["ours, half"]
    assert not found["ours, interleaved"]
    assert [row.split()[0] for row in rows][:9] == ["1", "2", "3", "4", "5", "7", "9", "10", "12"]
    assert "(exhibits 1 to 5, 7, 9, 10 and 12)" in TEXT


def test_the_questions_find_yarn_in_a_plain_layer(examine: Callable[..., list[str]]) -> None:
    """Exhibit 6, which the exercise does not have: by its frequencies alone, and by its factor."""
    yarn = rl.scheme("yarn", dim=32, base=5e5, factor=8, train_length=8192)
    assert yarn.frequencies is not None
    omega = yarn.frequencies()

    def rotate(x: Tensor, positions: Tensor, scale: float = 1.0) -> Tensor:
        turned = rl.apply_rotary(x, positions, omega, layout="half")
        return torch.cat((scale * turned[:, :32], turned[:, 32:]), -1)

    assert "many steps are, too" in examine(rotate, bug_museum.OMEGA, bug_museum.HEAD)
    factor = functools.partial(rotate, scale=yarn.rotary_scale)
    assert "position 0 turns nothing" in examine(factor, bug_museum.OMEGA, bug_museum.HEAD)


def test_the_questions_take_a_layout(examine: Callable[..., list[str]]) -> None:
    def neighbours(x: Tensor, positions: Tensor) -> Tensor:
        return rl.apply_rotary(x, positions, bug_museum.OMEGA, layout="interleaved")

    assert examine(neighbours, bug_museum.OMEGA, bug_museum.HEAD, layout="interleaved") == []
    assert len(examine(neighbours, bug_museum.OMEGA, bug_museum.HEAD)) >= 2


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
