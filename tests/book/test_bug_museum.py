"""The bug museum: each exhibit has its thread, its numbers and a test; what it says of this package holds."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import itertools
import json
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


def test_the_cell_of_exhibit_10_finds_an_offset_that_is_lost() -> None:
    """Run as it stands, and with an attention whose cache begins each piece at position 0."""
    [cell] = [cell.body for cell in CELLS if "pairwise(stops)" in cell.body]
    names = {"rl": rl, "torch": torch, "product": itertools.product, "pairwise": itertools.pairwise}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(cell, dict(names))
    assert said.getvalue() == "32 ways to cut it, one result\n"
    assert said.getvalue() in printed()

    class Forgetful:
        scheme, KVCache = rl.scheme, rl.KVCache

        @staticmethod
        def attention(q: Tensor, k: Tensor, v: Tensor, s: rl.Scheme, cache: Any = None) -> Tensor:
            return rl.attention(q, k, v, s)

    with pytest.raises(AssertionError, match="not close"):
        exec(cell, {**names, "rl": Forgetful})


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
    assert museum.exhibits()["1 The angle that was rounded"][-1] == "position 239, or 1 at such a base"
    cos, sin = rl.rotary_table(torch.arange(4), rl.rope_frequencies(8))
    with pytest.raises(TypeError, match="cos and sin must both be float32 or both float64"):
        rl.rotary.rotate(torch.zeros(4, 8), cos.half(), sin.half(), layout="half")


def test_1_round_late() -> None:
    """Of the four places to round one does no harm, at any position; by plain loops where it begins."""
    found = museum.rounding()
    (_, slow, unmerged), (_, positions, merged), (_, angles, same), (worst, never, apart) = found.values()
    assert (positions, merged, angles, same) == (257, 257, 40, 2567)
    assert (slow, unmerged) == (82, None)
    assert (never, apart) == (None, None)
    assert worst < 0.003
    assert worst == pytest.approx(2**-9 * 2**0.5, rel=0.01)  # half a step of bfloat16 in both
    omega = rl.rope_frequencies(128)
    for m in range(1, 2568):
        here, before = ((n * omega).bfloat16() for n in (m, m - 1))
        assert torch.equal(here, before) is (m == 2567), m
    assert "A rounded cosine and sine are off by 0.003 at most, at any position" in TEXT
    assert museum.rounding(longest=8192)["cosines and sines"][0] == pytest.approx(worst, rel=0.02)


def test_1_in_float16() -> None:
    found = museum.rounding(torch.float16)
    assert [begins for _, begins, _ in found.values()] == [414, 2049, 303, None]
    assert [merges for *_, merges in found.values()][1::2] == [2049, None]
    assert len(museum.museum_rounding().rows) == 8
    # What the text says of the types, and of an angle of a thousand.
    for dtype, bits in ((torch.bfloat16, 8), (torch.float16, 11)):
        m = torch.arange(2**bits + 2)
        assert int((m.to(dtype).long() != m).nonzero()[0]) == 2**bits + 1
        assert f"has {bits} significant bits" in TEXT or f"float16 has {bits}, as TF32" in TEXT
    angles = torch.linspace(990, 1010, 4001, dtype=torch.float64)
    assert float((angles.half().double() - angles).abs().max()) == pytest.approx(0.25, abs=0.001)
    assert round(math.degrees(0.25)) == 14
    assert "off by up to a quarter of a radian, 14°" in TEXT


def test_1_a_base_of_a_million_in_float16() -> None:
    omega = 1 / 1e6 ** (torch.arange(0, 128, 2).half() / 128)
    assert (omega == 0).tolist() == [False] + [True] * 63
    assert torch.finfo(torch.float16).max == 65_504
    assert "On our CPU a million becomes infinite in it, and all frequencies but the first become 0, so all is" in TEXT
    assert museum.exhibits()["1 The angle that was rounded"][0] == "no right answer, at a large base"
    exact = 1 / 1e6 ** (torch.arange(0, 128, 2).double() / 128)
    assert float(museum.moved(omega.double(), exact)) > museum.WRONG_FROM  # at position 1


def test_2_the_picture_of_one_colour() -> None:
    """Steps of 512 at 65,536, and the first that merges at 257; 2,049 in TF32, which has float16's digits."""
    for way, apart in (("@   ", 1), ("*   ", 64), ("here", 64)):
        assert f"{way} keeps {apart} of 64 columns apart" in printed()
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
    """The numbers of pie #603: five slices before, after, and of mlx-lm."""
    slices = (
        (64.6, 75.4, 78.3, 45.5, 37.1), (68.5, 80.3, 80.5, 57.6, 47.7), (67.8, 80.3, 80.7, 56.6, 47.3)
    )  # fmt: skip
    assert [round(sum(each) / 5) for each in slices] == [60, 67, 67]
    assert "Another program had 67 % on the same weights." in TEXT
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
    stale, here = numbers(r"stale off by ([\d.]+)\nhere  off by ([\d.]+)")
    assert stale == pytest.approx(0.36, abs=0.01)
    assert here == 0
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
    assert "a checkpoint holds []\nthe fix calls None" in printed()
    assert "frequencies: [nan, nan, nan, nan]" in printed()
    assert "here: [1.0, 0.1, 0.01, 0.001]" in printed()
    assert not torch.are_deterministic_algorithms_enabled()
    assert list(rl.nn.RotaryEmbedding(rl.FrequencySpec("rope", dim=8)).buffers()) == []


def test_where_each_begins() -> None:
    """The table, by hand: an error of a tenth in some pair."""
    begins = {name.split(" ")[0]: begin for name, (*_, begin) in museum.exhibits().items()}
    assert begins == {
        "1": "position 239, or 1 at such a base", "2": "position 257", "3": "position 1", "4": "position 1",
        "5": "distance 1", "6": "distance 0", "7": "distance 0", "8": "length 2,050", "9": "position 2",
        "10": "new token 2", "11": "length 4,097", "12": "position 1",
    }  # fmt: skip
    for name, off in (("1", museum._rounded), ("2", museum._merged)):
        position = int(begins[name].split()[1].strip(","))
        assert off(torch.arange(position)).max() <= museum.WRONG_FROM < off(torch.tensor([position]))
    lines = {name: museum.worst_so_far(number, 4096) for number, (name, *_) in enumerate(museum.LINES)}
    ours = lines["angles in float64, table in float32"]
    assert f"{float(ours[-1]):.0e}" == f"{float(ours[1]):.0e}" == "4e-08"
    assert "The flat 4·10⁻⁸ is the rounding of a float32 table" in TEXT
    assert f"{float(lines['6 YaRN in a plain layer'][0]):.2f}" == "0.21"
    assert f"{rl.yarn_attention_factor(8):.2f}" == "1.21"
    assert "Exhibit 6 begins at 0.21, as YaRN makes the vector 1.21 times as long" in TEXT


def test_when_keys_are_stale_and_when_that_is_more_than_a_tenth() -> None:
    m, old = torch.arange(2048)[:, None], rl.dynamic_ntk_frequencies(128, 2048, 2048, 2.0)
    off = [
        float(museum.moved(m * old, m * rl.dynamic_ntk_frequencies(128, length, 2048, 2.0)).max())
        for length in (2048, 2049, 2050)
    ]
    assert off[0] == 0 < off[1] < 0.1 < off[2]
    omega = rl.dynamic_ntk_frequencies(128, 2050, 2048, 2.0)
    worst = museum.moved(m * old, m * omega)
    assert (int(worst.argmax()), round(float(worst.max()), 2)) == (2047, 0.16)
    assert "At length 2,050 key 2,047 is off by 0.16, at 2,100 it is opposite." in TEXT
    assert torch.equal(museum.stale(2050)[:2048], worst)
    late = museum.stale(2100)
    assert float(late[2047]) > 1.99
    assert float(late[:20].max()) < 0.1  # hardly turned
    assert float(late[-1]) == 0


# --- the list of questions, and the exercise --------------------------------------------------------------------------


@pytest.fixture
def examine() -> Callable[..., list[str]]:
    return names_of_the_page()["examine"]


@pytest.mark.parametrize("name", bug_museum.WRONG)
def test_near_far_near_finds_it(name: str, examine: Callable[..., list[str]]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        assert "near, far, near" in examine(bug_museum.WRONG[name], bug_museum.OMEGA, bug_museum.HEAD)


def test_the_third_question_finds_all_but_two(examine: Callable[..., list[str]]) -> None:
    """9 and 10 are right in their first call."""
    for seed in range(5):
        torch.manual_seed(seed)
        missed = [
            bug_museum.EXHIBIT_OF[name]
            for name, make in bug_museum.WRONG.items()
            if "many steps are, too" not in examine(make, bug_museum.OMEGA, bug_museum.HEAD)
        ]
        assert missed == [9, 10]
    assert "the third question finds nine of the eleven. The other two, 9 and 10, are right in their first" in TEXT


def test_each_question_has_a_new_rotation(examine: Callable[..., list[str]]) -> None:
    """Else a dot would depend on what was asked before: only the last two ask one rotation more than once."""
    calls: list[list[int]] = []

    def make() -> Callable[[Tensor, Tensor], Tensor]:
        calls.append([])
        mine, right = calls[-1], bug_museum.RIGHT["computed in float64"]()

        def rotate(x: Tensor, positions: Tensor) -> Tensor:
            mine.append(int(positions[0]))
            return right(x, positions)

        return rotate

    assert examine(make, bug_museum.OMEGA, bug_museum.HEAD) == []
    assert [mine for mine in calls if len(mine) > 1] == [[1, 65_537, 3, 3]]


def test_a_rounded_frequency_is_relative_and_a_rounded_angle_is_not(examine: Callable[..., list[str]]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        found = {
            name: examine(bug_museum.WRONG[name], bug_museum.OMEGA, bug_museum.HEAD)
            for name in ("the rounded angle", "the rounded frequencies")
        }
        assert "only distance counts" in found["the rounded angle"]
        assert "only distance counts" not in found["the rounded frequencies"]


def test_the_grid_says_what_the_questions_found() -> None:
    found = names_of_the_page()["found"]
    assert list(found) == [*bug_museum.WRONG, "ours"]
    grid = museum.museum_grid(found)
    assert set(museum.QUESTIONS) == set().union(*found.values())
    rows = [cells for name, cells in grid.rows.items() if name not in museum.ELSEWHERE]
    for name, cells in zip(found, rows, strict=True):
        assert [cell == "●" for cell in cells] == [question in found[name] for question in museum.QUESTIONS]
    assert not found["ours"]
    numbers_of_rows = [int(row.split()[0]) for row in list(grid.rows)[:-1]]
    assert sorted(set(numbers_of_rows)) == list(range(1, 13))
    assert all(not any(grid.rows[name]) for name in museum.ELSEWHERE)
    assert "(exhibits 1 to 7, 9, 10 and 12; the first in two ways)" in TEXT


def test_the_tables_link_to_the_exhibits() -> None:
    anchors = ["#" + re.sub(r"\W+", "-", title.split(". ")[1].lower()) for title in EXHIBITS]
    assert list(museum.museum_table().links.values()) == anchors
    grid = museum.museum_grid(names_of_the_page()["found"])
    for row, anchor in grid.links.items():
        assert anchor == anchors[int(row.split()[0]) - 1]
    assert len(grid.links) == len(grid.rows) - 1


def test_the_five_families_have_all_the_exhibits() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d, ]+) \| ([^|]+) \|$", TEXT.split("## What kept them silent")[1], re.MULTILINE
    )
    assert len(rows) == 5
    assert {int(number) for _, numbers, _ in rows for number in numbers.split(",")} == set(range(1, 13))
    assert "questions for your own code, and five habits" in TEXT


def test_the_questions_take_a_layout(examine: Callable[..., list[str]]) -> None:
    def neighbours(x: Tensor, positions: Tensor) -> Tensor:
        return rl.apply_rotary(x, positions, bug_museum.OMEGA, layout="interleaved")

    assert examine(lambda: neighbours, bug_museum.OMEGA, bug_museum.HEAD, layout="interleaved") == []
    assert len(examine(lambda: neighbours, bug_museum.OMEGA, bug_museum.HEAD)) >= 2


def test_a_module_of_transformers_is_asked() -> None:
    """As the page asks it: right with its base, and the row of exhibit 5 without."""
    names = dict(names_of_the_page())
    (code,) = re.findall(r"```python\n(from transformers import LlamaConfig.*?)```", TEXT, re.DOTALL)
    exec(code, names)
    omega = rl.rope_frequencies(64, 5e5)
    asked = {base: names["examine"](lambda b=base: names["llama"](b), omega, 64) for base in (5e5, 1e4)}
    assert asked[5e5] == []
    assert asked[1e4] == ["one step is omega", "many steps are, too", "near, far, near"]


def test_every_question_finds_something(examine: Callable[..., list[str]]) -> None:
    found = [set(examine(make, bug_museum.OMEGA, bug_museum.HEAD)) for make in bug_museum.WRONG.values()]
    assert len(set().union(*found)) == 7


@pytest.mark.parametrize("name", bug_museum.RIGHT)
def test_the_questions_find_nothing_in_what_is_right(name: str, examine: Callable[..., list[str]]) -> None:
    for seed in range(5):
        torch.manual_seed(seed)
        assert examine(bug_museum.RIGHT[name], bug_museum.OMEGA, bug_museum.HEAD) == []


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

        def twice(x: Tensor, positions: Tensor, of: Any = rotate, nu: float = 1.0) -> Tensor:
            return nu * of(x, positions)

        layer = rl.scheme_from_hf(dict(config.rope_parameters or {}), head_dim=64)
        assert layer.frequencies is not None
        omega = layer.frequencies()
        assert examine(lambda of=rotate: of, omega, 64, layer.rotary_scale) == []
        if layer.rotary_scale > 1:
            applied = functools.partial(twice, nu=layer.rotary_scale)
            assert "position 0 turns nothing" in examine(lambda of=applied: of, omega, 64, layer.rotary_scale)


def test_the_lamps_to_guess_by() -> None:
    """Each rotation's lamps, once; what is taken for right are all exhibits with these lamps."""
    found = names_of_the_page()["found"]
    shown = museum.museum_guess(found)
    made = re.search(r"lamps = (\[.*?\]), rows = (\[\[.*\]\]);", shown.script)
    assert made
    lamps, rows = map(json.loads, made.groups())
    assert sorted(number for numbers in rows for number in numbers) == list(range(1, 12))
    assert len(set(lamps)) == len(lamps) == len(rows)
    for number, (name, exhibit) in enumerate(bug_museum.EXHIBIT_OF.items(), 1):
        lit = "".join("○●"[question in found[name]] for question in museum.QUESTIONS)
        assert number in rows[lamps.index(lit)]
        assert f'<option value="{number}">{exhibit} {name}</option>' in shown._repr_html_()
        same = [other for other in found if other != "ours" and set(found[other]) == set(found[name])]
        assert [list(bug_museum.EXHIBIT_OF)[n - 1] for n in rows[lamps.index(lit)]] == same
    assert "".join(re.findall(r"<b>(.)</b>", shown.svg)) == lamps[0]  # the first frame
    assert "Before you see the answers, guess." in TEXT


def test_the_questions_pass_the_exercise(examine: Callable[..., list[str]]) -> None:
    """With one and the same rotation, as a test of the exercise has it."""

    def test(rotate: Callable[[Tensor, Tensor], Tensor]) -> None:
        assert not examine(lambda: rotate, bug_museum.OMEGA, bug_museum.HEAD)

    assert check("bug_museum.test", test)


def test_what_the_text_says_of_the_exercise() -> None:
    """A comparison with the definition, near and far, finds ten of eleven; the relative property three."""
    assert (len(bug_museum.RIGHT), len(bug_museum.WRONG)) == (3, 11)
    assert "Your test must let three right rotations pass" in TEXT
    assert "stop eleven that come from this museum" in TEXT

    def without_the_third(rotate: Callable[[Tensor, Tensor], Tensor]) -> None:
        for start in (0, 65_537):
            x, positions = torch.randn(4, 64), start + torch.arange(4)
            wanted = rl.apply_rotary(x, positions, bug_museum.OMEGA, layout="half")
            assert ((rotate(x, positions) - wanted).norm(dim=-1) < 0.01 * x.norm(dim=-1)).all()

    def only_relative(rotate: Callable[[Tensor, Tensor], Tensor]) -> None:
        for _ in range(8):
            x, positions = torch.randn(2, 64), torch.tensor([9, 0, 65_545, 65_536])
            q, k, q_far, k_far = rotate(torch.cat((x, x)), positions)
            assert abs(q @ k - q_far @ k_far) < 0.01 * x.norm(dim=-1).prod()

    assert check("bug_museum.test", without_the_third).message.startswith("1 of 11 slipped through: the long text")
    assert check("bug_museum.test", bug_museum._relative).message.startswith("5 of 11 slipped through")
    assert check("bug_museum.test", only_relative).message.startswith("8 of 11 slipped through")
    assert "finds ten of the eleven" in TEXT
    assert "The relative property alone lets eight pass" in TEXT


def test_a_test_that_cannot_be_run_says_so() -> None:
    message = check("bug_museum.test", lambda rotate: rotate(torch.zeros(3, 8), torch.arange(3))).message
    assert message.startswith("rotate takes vectors of shape (tokens, 64)")
    assert "your answer raised ZeroDivisionError" in check("bug_museum.test", lambda rotate: 1 / 0).message
