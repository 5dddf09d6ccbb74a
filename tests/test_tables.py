"""Tables of results: what is marked, what is said, what is refused."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup

import rope_lessons as rl
from rope_lessons.figures import scoreboard
from rope_lessons.stored import Table, results

ROWS = {"plain": [62.74, 36.9], "YaRN": [58.9, 56.52], "ramp": [59.1, 56.48], "window": [62.74, 64.4]}


def html_of(found: rl.figures.ResultTable) -> BeautifulSoup:
    return BeautifulSoup(found._repr_html_(), "html.parser")


def marked(found: rl.figures.ResultTable) -> list[str]:
    return [cell.get_text() for cell in html_of(found).select(".rl-best b")]


def test_the_best_of_a_column_is_marked_also_where_it_is_the_control() -> None:
    assert marked(rl.figures.table(["home", "long"], ROWS, apart=["window"])) == ["62.7", "62.7", "64.4"]
    assert marked(rl.figures.table(["home", "long"], ROWS)) == ["62.7", "62.7", "64.4"]
    assert marked(rl.figures.table(["home", "long"], ROWS, best="lowest")) == ["36.9", "58.9"]
    assert marked(rl.figures.table(["home", "long"], ROWS, best=None)) == []


def test_a_screen_reader_knows_rows_and_columns() -> None:
    page = html_of(rl.figures.table(["home", "long"], ROWS, head="method", caption="A < B", apart=["window"]))
    assert [cell.get_text() for cell in page.select("thead th[scope=col]")] == ["method", "home", "long"]
    assert [cell.get_text() for cell in page.select("tbody th[scope=row]")] == list(ROWS)
    assert [cell.get_text() for cell in page.select("caption")] == ["A < B"]
    assert [row.th.get_text() for row in page.select("tr.rl-apart") if row.th] == ["window"]


def test_a_phone_shows_what_the_columns_or_rows_are() -> None:
    """The head of the names is hidden where it is empty, and nowhere else."""
    from rope_lessons.figures.tables import STYLE

    phone = STYLE[STYLE.index("@media") :]
    hidden = [rule.partition("{")[0] for rule in phone.splitlines() if "display:none" in rule]
    assert hidden == [".rl-table thead th:first-child:empty"]
    bare, named = (html_of(rl.figures.table(["0"], {"seed 0": [86.0]}, head=head)) for head in ("", "first position"))
    assert [len(page.select("thead th:first-child:empty")) for page in (bare, named)] == [1, 0]


def test_margins_and_gaps() -> None:
    found = rl.figures.table(["home", "long"], {"a": [1.0, None]}, margins={"a": [0.25, None]}, digits=2)
    assert [cell.get_text() for cell in html_of(found).select("td")] == ["1.00± 0.25", "–"]
    assert repr(found) == "   home  long\na  1.00     –"


def test_large_numbers_are_written_as_in_the_text() -> None:
    margins = {"x": [1234, None, None]}
    found = rl.figures.table(["a", "b", "c"], {"x": [54_410.2, -1024, 999]}, margins=margins, digits=0)
    assert found.rows["x"] == ("54,410", "−1,024", "999")
    assert found.below == {("x", 0): "± 1,234"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rows": {}}, "rows must have at least one row, got none"),
        ({"rows": {"a": [1.0]}}, "rows must have 2 numbers each, got 1 in 'a'"),
        ({"best": "largest"}, "best must be 'highest', 'lowest' or None, got 'largest'"),
        ({"apart": ["b"]}, "apart must be of plain, YaRN, ramp, window, got 'b'"),
    ],
)
def test_bad_tables(options: dict, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}$"):
        rl.figures.table(["home", "long"], **{"rows": ROWS, **options})


def line(row: str, metric: str, length: int, mean: float) -> dict:
    found = {"rung": "small", "row": row, "metric": metric, "length": length}
    return {**found, "seeds": 5, "mean": mean, "low": mean - 0.01, "high": mean + 0.01}


BOARD = Table(
    [
        *(line("rope", "natural", length, 0.6 - length / 2000) for length in (64, 128, 256, 512)),
        *(line("yarn", "natural", length, 0.58) for length in (64, 128, 256, 512)),
        line("yarn-x2", "natural", 128, 0.61),
        line("yarn-x4", "natural", 256, 0.59),
        line("rope", "far copies", 512, 0.3),
        line("yarn", "far copies", 512, 0.7),
        line("rope-window", "far copies", 512, 0.72),
    ]
)


def test_rows_of_the_scoreboard() -> None:
    names = {"rope": "plain", "yarn": "YaRN"}
    found = scoreboard.scoreboard_table(BOARD, names, columns=[("natural", 64), ("far copies", 512)])
    assert repr(found).splitlines()[-1].split() == ["YaRN", "58.0", "70.0"]
    assert "± 1.0" in str(html_of(found))
    assert "5 seeds" in found.caption
    assert "would pass" not in found.caption
    beyond = Table([{**line("rope", "needle", 512, 0.9), "low": 0.66, "high": 1.14}])
    found = scoreboard.scoreboard_table(beyond, {"rope": "plain"}, columns=[("needle", 512)])
    assert found.below == {("plain", 0): "66–100"}
    assert "over seeds and documents; where ± would pass 0 or 100, the two ends stand instead" in found.caption
    narrow = Table([{**line("rope", "needle", 512, 0.0014), "low": -0.002, "high": 0.0042}])
    found = scoreboard.scoreboard_table(narrow, {"rope": "plain"}, columns=[("needle", 512)])
    assert found.below == {("plain", 0): "0–0.4"}, "the mean, 0.1, lies between"
    alike = Table([{**line("rope", "needle", 512, 0.0), "low": 0.0, "high": 0.0}])
    assert scoreboard.scoreboard_table(alike, {"rope": "plain"}, columns=[("needle", 512)]).below == {("plain", 0): "–"}
    # What a row has not been asked, as a learned table beyond its end, is a dash.
    found = scoreboard.scoreboard_table(BOARD, names, columns=[("natural", 64), ("needle", 512)])
    assert repr(found).splitlines()[-1].split() == ["YaRN", "58.0", "–"]
    with pytest.raises(ValueError, match="pi"):
        scoreboard.scoreboard_table(BOARD, {"pi": "PI"})


def test_a_request_takes_the_row_of_its_length() -> None:
    found = scoreboard.request_table(BOARD, {"yarn": "YaRN"})
    assert found.rows["YaRN, per request"] == ("56.8", "61.0", "59.0", "58.0")
    assert found.rows["YaRN, factor 8"] == ("58.0",) * 4
    beside = scoreboard.request_table(BOARD, {"yarn": "YaRN"}, control={"yarn": "control"})
    assert beside.rows["control"] == ("58.0",) * 4
    assert beside.apart == {"control"}


def test_the_control_draws_the_line() -> None:
    names = {"rope": "plain", "yarn": "YaRN", "rope-window": "window of 64"}
    drawn = scoreboard.scoreboard_reach(BOARD, names, control="rope-window")
    assert "plain 30; YaRN 70; window of 64 72" in drawn.alt
    (axis,) = drawn.figure.axes
    assert [line.get_xdata() for line in axis.lines if line.get_linestyle() == "--"] == [[72.0, 72.0]]
    with pytest.raises(ValueError, match="control must be one of rope, yarn"):
        scoreboard.scoreboard_reach(BOARD, {"rope": "plain", "yarn": "YaRN"}, control="rope-window")


def test_a_trade_names_each_method_beside_its_point() -> None:
    board, names = results("scoreboard")["rows"], {"rope": "plain", "yarn": "YaRN", "rope-window": "window of 64"}
    drawn = scoreboard.scoreboard_trade(board, names, control="rope-window")
    home, far = (scoreboard.measured(board, "yarn", "natural", length)[0] for length in (64, 512))
    assert f"YaRN {home:.0f} and {far:.0f}" in drawn.alt
    (axis,) = drawn.figure.axes
    assert {text.get_text(): text.xy for text in axis.texts}["YaRN"] == (home, far)
    drawn = scoreboard.scoreboard_trade(board, names, control="rope-window", more={"one seed": (57.8, 57.3)})
    (axis,) = drawn.figure.axes
    assert [line.get_fillstyle() for line in axis.lines] == ["full"] * 3 + ["none"]
    assert "one seed 58 and 57" in drawn.alt
    with pytest.raises(ValueError, match="control must be one of rope, yarn"):
        scoreboard.scoreboard_trade(board, {"rope": "plain", "yarn": "YaRN"}, control="rope-window")


def test_columns_of_words_begin_on_the_left_and_names_are_links() -> None:
    found = rl.figures.ResultTable(
        ("why", "from"), {"a & b": ("so", "3")}, words=frozenset({0}), links={"a & b": "#here?x&y"}
    )
    page = html_of(found)
    assert [cell.get("class") for cell in page.select("thead th, td")] == [None, ["rl-words"], None, ["rl-words"], None]
    link = page.select_one("tbody th a")
    assert link is not None
    assert (link["href"], link.text) == ("#here?x&y", "a & b")
