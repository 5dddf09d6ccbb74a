"""Training, checkpoints, results and the command line of the benchmark."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rope_lessons as rl
from rope_lessons.chomsky import TASKS, results
from rope_lessons.chomsky.__main__ import changed, lock, main
from rope_lessons.chomsky.grid import CONFIGURATIONS, VARIANTS, Job, groups, jobs
from rope_lessons.chomsky.recurrent import Recurrent
from rope_lessons.chomsky.training import PROTOCOLS, PUBLISHED, REDUCED, Protocol, Training, previous
from rope_lessons.lab import checkpoint
from rope_lessons.lab.checkpoint import CheckpointError

TINY = Protocol(
    longest=6, batch=3, steps=6, max_position=64, test_lengths=(7, 9), samples=5, test_batch=4, width=16, layers=2,
    heads=4, feed_forward=24, hidden=8, cell_width=4, tape_cells=8, test_positions=("random", "grid"),
)  # fmt: skip
ROPE = jobs(["even_pairs"], ["transformer"], ["rope"], seeds=[0], learning_rates=[3e-3])  # three variants


def trained(some: list[Job], protocol: Protocol, steps: int) -> tuple[Training, torch.Tensor]:
    training = Training(some, protocol, dtype=torch.float64)
    return training, torch.stack([training.advance() for _ in range(steps)])


# --- the grid -------------------------------------------------------------------------------------------------------


def test_grid_is_the_one_that_was_asked_for():
    """Four recurrent models, the encoder without positions, and five kinds of positions in three variants."""
    assert len(CONFIGURATIONS) == len(set(CONFIGURATIONS)) == 4 + 1 + 5 * 3
    assert len({job.name for job in jobs()}) == len(jobs()) == 15 * 20 * 3 * 10
    with pytest.raises(ValueError, match="no configuration of the grid"):
        Job("even_pairs", "rnn", "rope", "plain", 0, 1e-3)
    with pytest.raises(ValueError, match="task must be one of"):
        jobs(["even"])


def test_groups_hold_every_job_once():
    some = jobs(["even_pairs", "parity_check"], seeds=[0, 1, 2, 3], learning_rates=[1e-3])
    found = list(groups(some, 3))
    assert [job for group in found for job in group] == some
    assert all(len({(j.task, j.model, j.positions) for j in group}) == 1 and len(group) <= 3 for group in found)


# --- the protocol ---------------------------------------------------------------------------------------------------


def test_published_protocol():
    """The numbers of the paper; the list is the test's own."""
    p = PUBLISHED
    assert (p.longest, p.batch, p.steps, p.clip, p.dropout, p.max_position) == (40, 128, 1_000_000, 1.0, 0.1, 2048)
    assert (p.width, p.layers, p.heads, p.feed_forward, p.hidden, p.cell_width) == (64, 5, 8, 256, 256, 8)
    assert p.test_lengths == tuple(range(41, 501))
    assert not p.masked_loss
    assert p.dropout_at_test
    assert p.draw == "layer"
    assert p.changes() == ""
    assert "steps=2000" in REDUCED.changes()
    assert len({protocol.digest() for protocol in PROTOCOLS.values()}) == len(PROTOCOLS)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"batch": 0}, "batch"), ({"dropout": 1.0}, "dropout"), ({"draw": "model"}, "draw"), ({"width": 65}, "width")],
)
def test_protocol_errors(wrong, message):
    with pytest.raises(ValueError, match=message):
        Protocol(**wrong)


def test_lengths_are_uniform():
    """All 40, each about as often, and the same for every job."""
    training = Training(ROPE, PUBLISHED)
    counts = torch.zeros(41)
    for step in range(4000):
        training.step = step
        counts[training.length()] += 1
    assert counts[0] == 0
    assert counts[1:].min() > 60
    assert counts[1:].max() < 145  # 100 each, five standard deviations are 50


# --- a step ---------------------------------------------------------------------------------------------------------


def test_side_by_side_equals_alone():
    """Weights, data, positions, dropout and Adam: every model's losses and weights are those that it has alone."""
    some = [*ROPE, *jobs(["even_pairs"], ["transformer"], ["rope"], ["random"], [1], [1e-3])]
    together, losses = trained(some, TINY, 5)
    for m, job in enumerate(some):
        alone, own = trained([job], TINY, 5)
        torch.testing.assert_close(losses[:, m : m + 1], own, rtol=0, atol=1e-9)
        torch.testing.assert_close(together.weights[m : m + 1], alone.weights, rtol=0, atol=1e-9)
    assert len({round(x, 9) for x in losses[-1].tolist()}) == len(some)


@pytest.mark.parametrize("positions", ["rope", "relative", "alibi", "learned"])
def test_every_device_gives_the_same(device, positions):
    """Weights, strings and positions are drawn on the CPU; only dropout is drawn where the model is."""
    some, protocol = (
        jobs(["reverse_string"], ["transformer"], [positions], VARIANTS, [0], [1e-3]),
        replace(TINY, dropout=0.0),
    )
    here, there = Training(some, protocol), Training(some, protocol, device)
    for _ in range(3):
        torch.testing.assert_close(there.advance().cpu(), here.advance(), rtol=0, atol=1e-4)
    assert Training(some, TINY, device).advance().isfinite().all()
    torch.testing.assert_close(there.shares(9)["accuracy"], here.shares(9)["accuracy"], rtol=0, atol=0.05)


def test_a_step_is_adam_behind_a_clipped_gradient():
    """PyTorch's own Adam and clipping, model by model."""
    some, protocol = jobs(["parity_check"], ["rnn"], seeds=[0, 1], learning_rates=[1e-2]), replace(TINY, clip=0.05)
    training = Training(some, protocol, dtype=torch.float64)
    peers = [torch.nn.Parameter(row.clone()) for row in training.weights.detach()]
    optimizers = [torch.optim.Adam([peer], lr=1e-2) for peer in peers]
    generator = torch.Generator().manual_seed(0)
    for size in (1e-4, 1.0, 1.0, 1e-4):  # below the clip and above it
        gradient = size * torch.randn(training.weights.shape, generator=generator, dtype=torch.float64)
        training.update(gradient)
        for peer, optimizer, own in zip(peers, optimizers, gradient, strict=True):
            norm = own.norm()
            peer.grad = own * min(1.0, 0.05 / norm)
            optimizer.step()
    torch.testing.assert_close(training.weights.detach(), torch.stack([p.detach() for p in peers]), rtol=0, atol=1e-12)


def test_loss_has_the_padding_in_unless_masked():
    job = jobs(["stack_manipulation"], ["rnn"], seeds=[0], learning_rates=[1e-2])
    scores = torch.tensor([[[[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]]])  # one model, one string, two tokens
    targets, mask = torch.tensor([[[0, 0]]]), torch.tensor([[[True, False]]])
    right, wrong = math.log(math.e**2 + 2) - 2, math.log(math.e**2 + 2)
    found = [Training(job, replace(TINY, masked_loss=m)).losses(scores, targets, mask).item() for m in (False, True)]
    assert found == pytest.approx([(right + wrong) / 2, right])


def test_text_is_the_input_and_empty_tokens(monkeypatch):
    """What the model reads, and that the answer is as long as the task says."""
    training, seen = Training(jobs(["duplicate_string"], ["rnn"], seeds=[0], learning_rates=[1e-2]), TINY), []
    call = Recurrent.__call__
    monkeypatch.setattr(Recurrent, "__call__", lambda self, *given: seen.append(given) or call(self, *given))
    training.shares(7)
    _, tokens, outputs, *_ = seen[0]
    assert (tokens.shape, outputs) == ((1, 4, 21), 14)
    assert (tokens[..., 7:] == 2).all()
    assert (tokens[..., :7] < 2).all()


def test_positions_by_variant_and_draw():
    plain, random, _ = range(3)
    training = Training(ROPE, replace(TINY, draw="layer", max_position=2048))
    found = training.positions(50, ("train", 0))
    assert found.shape == (2, 3, 50)
    assert (found[:, plain] == torch.arange(50)).all()
    assert (found[:, random].diff(dim=-1) > 0).all()
    assert found[:, random].max() < 2048
    assert not torch.equal(found[0, random], found[1, random])  # anew in each layer
    assert torch.equal(found, training.positions(50, ("train", 0)))
    assert not torch.equal(found, training.positions(50, ("train", 1)))
    grid = training.positions(50, ("train", 0), "grid")
    assert (grid[0, random] == torch.arange(50) * 2048 // 50).all()
    once = Training(ROPE, replace(TINY, max_position=2048)).protocol
    shared = Training(ROPE, replace(once, draw="forward")).positions(50, ("train", 0))
    assert torch.equal(shared[0], shared[1])


@pytest.mark.parametrize("positions", ["relative", "alibi"])
def test_drawn_distances_start_at_zero(positions):
    some = jobs(["even_pairs"], ["transformer"], [positions], ["plain", "random"], [0], [1e-3])
    found = Training(some, replace(TINY, max_position=2048)).positions(30, ("train", 0))
    assert (found[:, 0] == torch.arange(30)).all()
    assert (found[..., 0] == 0).all()
    assert (found.diff(dim=-1) >= 1).all()
    assert found.max() > 500


def test_positions_may_count_down():
    some = jobs(["even_pairs"], ["transformer"], ["sinusoidal"], ["plain"], [0], [1e-3])
    found = Training(some, replace(TINY, descending=True)).positions(4, ())
    assert found[0, 0].tolist() == [4, 3, 2, 1]


def test_log_n_counts_the_whole_text():
    """N is the longest text of training, with its answer; a test at three times the length has its own n."""
    training = Training(
        jobs(["reverse_string"], ["transformer"], ["rope"], seeds=[0], learning_rates=[1e-3]), PUBLISHED
    )
    scales = [scheme.scale for scheme in training.model.schemes()]
    assert scales == [None, None, rl.LogN(80)]


def test_dropout_masks():
    training = Training(ROPE, replace(PUBLISHED, dropout=0.25))
    masks = training.masks(300, ("train", 0))
    assert masks.shape == (3, 10, 300, 64)
    assert masks.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert (masks == 0).double().mean().item() == pytest.approx(0.25, abs=0.004)
    other = Training(ROPE[1:2], replace(PUBLISHED, dropout=0.25)).masks(300, ("train", 0))
    assert torch.equal(other[0], masks[1])


@pytest.mark.parametrize("name", TASKS)
def test_every_task(name):
    """Any of them trains at every length from 1 on, and its accuracy is a share."""
    training = Training(jobs([name], ["rnn"], seeds=[0], learning_rates=[1e-2]), TINY)
    lengths = {training.length() for training.step in range(20)}
    training.step = 0
    losses = torch.stack([training.advance() for _ in range(20)])
    assert lengths == set(range(1, 7))
    assert losses.isfinite().all()
    assert all(0 <= training.shares(length)["accuracy"].item() <= 1 for length in (7, 8))


def test_models_learn():
    """Same or different first and last symbol, of strings of one or two: an RNN is sure of it after 120 steps."""
    protocol = replace(TINY, longest=2, batch=32, hidden=16)
    losses = trained(jobs(["even_pairs"], ["rnn"], seeds=[0, 1, 2], learning_rates=[1e-2]), protocol, 120)[1]
    assert losses[-10:].max() < 0.05  # 0.01 is seen
    assert losses[:10].max() > 0.5


# --- evaluation -----------------------------------------------------------------------------------------------------


def test_accuracy_counts_answer_tokens(monkeypatch):
    """A model that always says 0 is right where the answer is 0, and only up to the terminator."""
    some = jobs(["stack_manipulation"], ["rnn"], seeds=[0, 1], learning_rates=[1e-2])
    training, kept = Training(some, replace(TINY, samples=40, test_batch=16)), []
    sample = training.task.sample
    monkeypatch.setattr(type(training.task), "sample", lambda self, *a: kept.append(sample(*a)) or kept[-1])
    monkeypatch.setattr(training, "scores", lambda several, outputs, *rest: _always_zero(2, several, outputs))
    found = training.shares(9)
    zeros = sum(int(((target == 0) & mask).sum()) for _, target, mask in kept)
    assert found["accuracy"].tolist() == [pytest.approx(zeros / sum(int(mask.sum()) for *_, mask in kept))] * 2
    assert [len(target) for _, target, _ in kept] == [16, 16, 8]


def _always_zero(models, several, outputs):
    scores = torch.zeros(models, several.shape[1], outputs, 3)
    scores[..., 0] = 1.0
    return scores


def test_exact_counts_whole_answers(monkeypatch):
    """Of 40 answers every second one has a wrong token, of model 1 where it does not count: after the terminator."""
    some = jobs(["stack_manipulation"], ["rnn"], seeds=[0, 1], learning_rates=[1e-2])
    training, kept = Training(some, replace(TINY, samples=40, test_batch=40)), []
    sample = training.task.sample
    monkeypatch.setattr(type(training.task), "sample", lambda self, *a: kept.append(sample(*a)) or kept[-1])

    def scores(several, outputs, *rest):
        (_, target, mask) = kept[-1]
        said = target.expand(2, -1, -1).clone()
        said[0, ::2, 0] += 1
        said[1, ::2] += (~mask[::2]).long()
        return torch.nn.functional.one_hot(said % 3, 3).double()

    monkeypatch.setattr(training, "scores", scores)
    found = training.shares(9)
    assert not kept[-1][2].all()
    assert found["exact"].tolist() == [0.5, 1.0]
    assert found["accuracy"].tolist() == [pytest.approx(1 - 20 / int(kept[-1][2].sum())), 1.0]


def test_rows_of_an_evaluation():
    """Plain models are tested once, those with random positions in each way of the protocol."""
    found = Training(ROPE, TINY).evaluate()
    seen = [(row["job"].variant, row["test_positions"], row["length"]) for row in found]
    ways = {"plain": ("plain",), "random": ("random", "grid"), "random+logn": ("random", "grid")}
    assert sorted(seen) == sorted((v, way, length) for v in VARIANTS for way in ways[v] for length in (7, 9))
    assert Training(ROPE, TINY).evaluate() == found


# --- checkpoints ----------------------------------------------------------------------------------------------------


def test_resumed_equals_uninterrupted(tmp_path):
    path = tmp_path / "a.checkpoint"
    _, whole = trained(ROPE, TINY, 6)
    training, first = trained(ROPE, TINY, 3)
    training.save(path)
    again = Training(ROPE, TINY, dtype=torch.float64)
    assert again.resume(path)
    second = torch.stack([again.advance() for _ in range(3)])
    assert torch.equal(torch.cat((first, second)), whole)
    assert torch.equal(torch.stack(again.recent), whole)


def test_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "a.checkpoint"
    training, _ = trained(ROPE, TINY, 2)
    training.save(path)
    training.advance()
    training.save(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    path.write_bytes(content)
    again = Training(ROPE, TINY, dtype=torch.float64)
    with pytest.raises(CheckpointError, match="does not have the SHA-256 that it was written with"):
        again.load(path)
    with pytest.warns(UserWarning, match=r"a\.checkpoint is damaged: .*; going on from the one before it"):
        assert again.resume(path)
    assert again.step == 2
    assert again.resume(path)  # the good one has taken the place of the damaged one: the next one does not push it out


def test_only_damaged_checkpoints_are_refused(tmp_path):
    """Nothing is begun anew over them: they may be all that is left of days of work."""
    path = tmp_path / "a.checkpoint"
    training, _ = trained(ROPE, TINY, 2)
    training.save(path)
    training.save(path)
    for damaged in (path, previous(path)):
        damaged.write_bytes(damaged.read_bytes()[:-1])
    told = (
        r"a\.checkpoint is damaged.*; .*a\.previous is damaged.*\. Delete what is damaged to begin this training anew"
    )
    with pytest.raises(CheckpointError, match=told):
        Training(ROPE, TINY, dtype=torch.float64).resume(path)
    previous(path).unlink()
    with pytest.raises(CheckpointError, match=r"a\.checkpoint is damaged.* Delete"):
        Training(ROPE, TINY, dtype=torch.float64).resume(path)
    path.unlink()
    assert not Training(ROPE, TINY, dtype=torch.float64).resume(path)


def test_a_good_checksum_is_not_enough(tmp_path):
    """Other content, other entries, other shapes: PyTorch would spread a single number over all weights."""
    path = tmp_path / "a.checkpoint"
    training = Training(ROPE, TINY)
    training.save(path)
    state, identity = training.state(), training.identity()
    for wrong, message in (
        (state | {"weights": torch.zeros(1)}, r"weights is torch.float32 \(1,\) there and torch.float32 \(3, "),
        (state | {"first_moment": state["first_moment"][:2]}, r"first_moment is torch.float32 \(2, "),
        (
            state | {"recent": torch.zeros(1, 3)},
            r"recent is torch.float32 \(1, 3\) there and torch.float32 \(0, 3\) here",
        ),
        (state | {"more": torch.zeros(1)}, r"more is torch.float32 \(1,\) there and missing here"),
        ({}, "first_moment is missing there"),
    ):
        checkpoint.write(path, 0, wrong, identity)
        with pytest.raises(CheckpointError, match=f"does not hold the tensors of this training: .*{message}"):
            Training(ROPE, TINY).load(path)
    torch.save(state, path)
    with pytest.raises(CheckpointError, match="is damaged, or no safetensors file"):
        Training(ROPE, TINY).load(path)


def test_checkpoint_of_other_jobs_is_refused(tmp_path):
    path = tmp_path / "a.checkpoint"
    Training(ROPE, TINY).save(path)
    for some, protocol, told in ((ROPE[:2], TINY, "jobs"), (ROPE, replace(TINY, batch=4), "protocol")):
        with pytest.raises(CheckpointError, match=f"is of another training: {told} is "):
            Training(some, protocol).resume(path)


# --- results --------------------------------------------------------------------------------------------------------


def test_score_is_the_mean_over_all_lengths():
    accuracies = {length: 1 / length for length in range(41, 501)}
    assert results.score(accuracies) == pytest.approx(sum(accuracies.values()) / 460)
    line = {41: 0.9, 100: 0.9 - 59e-3, 500: 0.9 - 459e-3, 40: 0.0}  # on a straight line nothing is lost
    assert results.score(line) == pytest.approx((0.9 + 0.9 - 0.459) / 2)
    with pytest.raises(ValueError, match="length 41"):
        results.score({500: 1.0})


def lines(seed: int) -> list[dict[str, object]]:
    training = Training(jobs(["even_pairs"], ["rnn"], seeds=[seed], learning_rates=[1e-2]), TINY)
    found = training.evaluate()
    return results.lines_of(found, TINY, "regular", {training.jobs[0]: 0.5}, 1.0, training.device)


def test_results_file(tmp_path):
    path = tmp_path / "deep" / "results.json"
    for seed in (0, 1):
        results.append(path, lines(seed))
    rows = results.read(path)
    assert [(row.seed, row.length) for row in rows] == [(0, 7), (0, 9), (1, 7), (1, 9)]
    assert rows[0].accuracy == pytest.approx(lines(0)[0]["accuracy"])
    assert rows[0].reduced is True
    assert results.done(path, TINY) == {f"even_pairs/rnn/none/plain/0.01/{seed}" for seed in (0, 1)}
    assert results.done(path, replace(TINY, batch=4)) == set()
    first = next(iter(results.lines(path)))
    for name in ("date", "version", "torch", "python", "hardware", "protocol", "changes", "seconds"):
        assert first[name]
    found = results.scores(rows, 7, 9)
    assert list(found) == [("even_pairs", "rnn", "none", "plain", "plain")]
    assert set(found["even_pairs", "rnn", "none", "plain", "plain"]) == {0, 1}


def test_a_damaged_file_is_refused(tmp_path):
    """Nothing is added to it, and nothing of it is thrown away: a file that is written whole has no half lines."""
    path = tmp_path / "results.json"
    results.append(path, lines(0))
    damaged = path.read_bytes()[:-20]
    path.write_bytes(damaged)
    for use in (results.read, lambda path: results.done(path, TINY), lambda path: results.append(path, lines(1))):
        with pytest.raises(ValueError, match=r"results\.json is no file of results, or damaged: "):
            use(path)
    assert path.read_bytes() == damaged


def test_a_training_that_went_astray(tmp_path):
    """Its loss is no number, and its accuracy is kept."""
    found = [{"job": jobs(["even_pairs"], ["rnn"], seeds=[0], learning_rates=[1e-2])[0], "test_positions": "plain",
              "length": length, "accuracy": 0.5, "exact": 0.0} for length in TINY.test_lengths]  # fmt: skip
    for loss in (math.nan, math.inf):
        path = tmp_path / f"{loss}.json"
        rows = results.lines_of(found, TINY, "regular", {found[0]["job"]: loss}, 1.0, torch.device("cpu"))
        results.append(path, rows)
        assert results.lines(path)["train_loss"] == [None, None]
        assert results.done(path, TINY) == {found[0]["job"].name}


def test_whole_answers_are_read_where_they_were_counted(tmp_path):
    path = tmp_path / "results.json"
    results.append(path, [{**line, "exact": 0.25} for line in lines(0)])
    assert {row.exact for row in results.read(path)} == {0.25}
    assert {row.exact for row in results.read()} == {None}  # the packaged ones are older


def test_lines_are_written_once(tmp_path):
    """A process that was killed between two files adds to each what it does not have yet."""
    path = tmp_path / "results.json"
    results.append(path, lines(0))
    results.append(path, lines(0) + lines(1))
    assert [(row.seed, row.length) for row in results.read(path)] == [(0, 7), (0, 9), (1, 7), (1, 9)]


def test_a_job_without_all_its_lines_is_not_done(tmp_path):
    """So it is measured again."""
    path = tmp_path / "results.json"
    results.append(path, lines(0) + lines(1)[:-1])
    assert results.done(path, TINY) == {"even_pairs/rnn/none/plain/0.01/0"}
    results.append(path, lines(1))
    assert results.done(path, TINY) == {f"even_pairs/rnn/none/plain/0.01/{seed}" for seed in (0, 1)}


def test_names_tell_all_learning_rates_apart():
    one, other = (Job("even_pairs", "rnn", "none", "plain", 0, rate) for rate in (3e-4, 3e-4 + 1e-12))
    assert one.name != other.name
    assert (
        Job("even_pairs", "rnn", "none", "plain", 0, 1).name == Job("even_pairs", "rnn", "none", "plain", 0, 1.0).name
    )


def test_best_learning_rate_of_a_seed_counts():
    def row(rate: float, seed: int, accuracy: float, protocol: str = "p") -> list[results.Row]:
        job = ("even_pairs", "rnn", "none", "plain", seed, rate, "plain")
        return [results.Row(*job, length, accuracy, True, protocol) for length in (41, 500)]

    rows = row(1e-4, 0, 0.6) + row(3e-4, 0, 0.8) + row(1e-4, 1, 0.5)
    found = results.scores(rows)["even_pairs", "rnn", "none", "plain", "plain"]
    assert found == {0: pytest.approx(0.8), 1: pytest.approx(0.5)}
    with pytest.raises(ValueError, match="of one protocol"):
        results.scores(rows + row(1e-4, 2, 0.5, "other"))


# --- the command line -----------------------------------------------------------------------------------------------

SMALL_RUN = [
    "--task", "even_pairs", "--model", "transformer", "rnn", "--positions", "rope", "none", "--variant", "plain",
    "--seeds", "0", "1", "--learning-rate", "1e-3", "--quiet", "--device", "cpu", "--set", "longest=6", "batch=3",
    "test_lengths=7+9", "samples=4", "width=16", "layers=1", "heads=4", "feed_forward=8", "hidden=8", "steps=10",
]  # fmt: skip


def paths(folder: Path) -> list[str]:
    return ["--results", str(folder / "a.json"), str(folder / "copy.json"), "--checkpoints", str(folder / "unfinished")]


def test_command_line_skips_what_is_done(tmp_path, capsys):
    main([*SMALL_RUN, *paths(tmp_path), "--list"])
    listed = capsys.readouterr().out
    assert "6 jobs, 6 in this part, 6 left" in listed
    assert "even_pairs/rnn/none/plain/0.001/1" in listed
    for shard in ("0/2", "1/2", "0/1"):
        main([*SMALL_RUN, *paths(tmp_path), "--shard", shard])
    assert "6 jobs, 6 in this part, 0 left" in capsys.readouterr().out
    rows = results.read(tmp_path / "a.json")
    assert len(rows) == len({(row[:6], row.length) for row in rows}) == 6 * 2
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "copy.json").read_bytes()
    assert not list((tmp_path / "unfinished").glob("*.checkpoint"))


def test_a_job_of_another_process_is_left_to_it(tmp_path):
    arguments = [*SMALL_RUN, "--model", "rnn", *paths(tmp_path)]
    protocol = changed(PUBLISHED, SMALL_RUN[SMALL_RUN.index("--set") + 1 :])
    with lock(tmp_path / "unfinished", protocol, "even_pairs/rnn/none/plain/0.001/1"):
        main(arguments)
    assert {row.seed for row in results.read(tmp_path / "a.json")} == {0}
    main(arguments)
    assert {row.seed for row in results.read(tmp_path / "a.json")} == {0, 1}


def test_torchrun_says_which_part(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    main([*SMALL_RUN, *paths(tmp_path), "--list"])
    assert "6 jobs, 2 in this part, 2 left" in capsys.readouterr().out


def test_a_killed_process_goes_on(tmp_path):
    """Killed without warning in the middle, started again: the results are those of a run that nobody disturbed."""
    arguments = [*SMALL_RUN, "steps=300", "--model", "rnn"]
    command = [sys.executable, "-m", "rope_lessons.chomsky", *arguments, "--save-every", "0", *paths(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        while not list((tmp_path / "unfinished").glob("*.previous")) and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
    assert list((tmp_path / "unfinished").glob("*.previous"))
    for folder in (tmp_path, tmp_path / "undisturbed"):
        main([*arguments, *paths(folder)])
    interrupted, whole = (results.lines(folder / "a.json") for folder in (tmp_path, tmp_path / "undisturbed"))
    for name in ("seed", "positions", "length", "accuracy", "train_loss"):
        assert [line[name] for line in interrupted] == [line[name] for line in whole]


def test_deadline_leaves_a_checkpoint(tmp_path):
    endless = [word.replace("steps=10", "steps=1000000") for word in SMALL_RUN]
    main([*endless, *paths(tmp_path), "--minutes", "0.01"])
    assert not (tmp_path / "a.json").exists()
    assert list((tmp_path / "unfinished").glob("*.checkpoint"))


def test_set_changes_the_protocol():
    found = changed(PUBLISHED, ["dropout_at_test=False", "test_lengths=50+60", "test_positions=grid", "clip=2"])
    assert found == replace(PUBLISHED, dropout_at_test=False, test_lengths=(50, 60), test_positions=("grid",), clip=2.0)
    for wrong in ("size=3", "batch=many", "dropout_at_test=yes"):
        with pytest.raises(ValueError, match="--set"):
            changed(PUBLISHED, [wrong])


# --- what is stored -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not results.PACKAGED.exists(), reason="no part of the reduced grid has been done yet")
def test_stored_results():
    rows = results.read()
    assert {row.protocol for row in rows} == {REDUCED.digest()}
    assert all(row.reduced and row.task in TASKS and 0 <= row.accuracy <= 1 for row in rows)
    each = {(row[:7], row.length) for row in rows}
    assert len(each) == len(rows)
    assert {row.length for row in rows} == set(REDUCED.test_lengths)
