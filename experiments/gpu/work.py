"""Do the steps that are missing, in processes of their own: one that fails, or dies, takes no other with it.

After an error a card may answer every call with the same error, so a process that met one is replaced. What a process
that was killed was at is tried again after all that was not tried yet.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait

import torch

from experiments.gpu.records import Record, Records, machine, record
from experiments.gpu.step import Found, OutOfTime, Setting, Step
from experiments.gpu.timing import forget_compiled

GRACE = 15.0  # seconds that a step may go on for after the end; then its process is killed
SPARE = 4  # cores that stay free beside trainings on the processor
Say = Callable[[str], object]


def in_order(steps: Sequence[Step], known: Mapping[str, Record]) -> list[Step]:
    """What is to be done: what was not tried yet, and then what failed, was killed, or lacked a package."""
    tried = {name for name, one in known.items() if one.state in ("failed", "begun", "missing")}
    left = [step for step in steps if step.name not in known or known[step.name].state != "done"]
    again = [step for step in left if step.name in tried]
    return [step for step in left if step.name not in tried] + again


def limits(device: torch.device, cores: int | None = None) -> dict[str, int]:
    """How many steps of a lane may work at a time."""
    cores = cores or os.cpu_count() or 1
    many, side_by_side = max(0, cores - SPARE) if device.type == "cuda" else 1, min(8, cores)
    return {"quiet": 1, "several": side_by_side, "card": 1, "shared": side_by_side, "cores": many}


def startable(
    pending: Sequence[Step], running: Sequence[Step], most: Mapping[str, int], fits: Callable[[Step], bool]
) -> Step | None:
    """The step to begin now; None to wait.

    The first one that fits into the time is next, and nothing overtakes it but trainings on the processor, which are
    begun beside a training on the card, or when nothing else is left.
    """
    lanes = [step.lane for step in running]
    first = next((step for step in pending if step.lane != "cores" and fits(step)), None)
    if first is not None:
        beside = {"quiet": set(), "several": {"several"}}.get(first.lane, {first.lane, "cores"})
        if set(lanes) <= beside and lanes.count(first.lane) < most[first.lane]:
            return first
    trains = {"card", "shared"} & set(lanes) or first is None
    if trains and not {"quiet", "several"} & set(lanes) and lanes.count("cores") < most["cores"]:
        return next((step for step in pending if step.lane == "cores" and fits(step)), None)
    return None


def work(
    steps: Sequence[Step], known: Mapping[str, Record], setting: Setting, records: Records, say: Say = print
) -> dict[str, str]:
    """Do what is left, as far as the time goes.

    Args:
        steps: the queue.
        known: what was done before, by step.
        setting: for all steps.
        records: where each result is kept as soon as it is there.
        say: takes a line.

    Returns:
        the state of each step that was tried.
    """
    pending, states = [], {}
    for step in in_order(steps, known):
        if missing := step.missing():
            states[step.name] = "missing"
            lacks = f"it needs {', '.join(missing)}, not installed here"
            records.keep(record(step.name, "missing", setting, machine(setting.device), Found(wrong=[lacks])))
            say(f"{step.name}: missing. {lacks}")
        else:
            pending.append(step)
    crew = Crew(setting)
    try:
        while True:
            while chosen := startable(pending, crew.at_work(), crew.most, lambda step: fits(step, setting)):
                pending.remove(chosen)
                crew.begin(chosen)
            if not crew.at_work():
                break
            for one in crew.heard():
                states[one.step] = one.state
                if one.state == "stopped":
                    records.drop(one.step)
                else:
                    one = records.keep(one)
                    states[one.step] = one.state
                if one.state != "begun":
                    say(line_of(one))
    finally:
        crew.dismiss()
    if pending:
        say(f"{len(pending)} steps are left. The same line, with --have {records.out}, goes on from there")
    return states


def fits(step: Step, setting: Setting) -> bool:
    """Whether there is time for a step, or for a good piece of it."""
    return setting.left > 60 * (min(1.0, step.minutes) if step.pauses else step.minutes)


def line_of(one: Record) -> str:
    """What is said of a step that is over."""
    told = f": {one.content['wrong'][0].strip().splitlines()[-1]}" if one.content["wrong"] else ""
    return f"{one.step}: {one.state}, {one.content.get('minutes', 0.0):.1f} minutes{told}"


# --- processes -------------------------------------------------------------------------------------------------------


def attempt(step: Step, setting: Setting) -> Record:
    """Do a step, whatever it ends with."""
    about, begun = machine(setting.device), time.time()
    try:
        found = step.run(setting)
        state = "failed" if found.wrong else "done"
    except OutOfTime:
        found, state = Found(), "stopped"
    except Exception as error:
        found, state = Found(wrong=["".join(traceback.format_exception(error))[-4000:]]), "failed"
    return record(step.name, state, setting, about, found, minutes=round((time.time() - begun) / 60, 3))


def serve(pipe: Connection, setting: Setting, alone: bool) -> None:
    """A process of the crew: it does what it is sent, and says when it begins and what came of it."""
    if setting.device.type == "cpu" or not alone:
        torch.set_num_threads(1)
    while True:
        step = pipe.recv()
        if step is None:
            return
        own = setting if step.lane != "cores" else on_cpu(setting)
        pipe.send(record(step.name, "begun", setting, machine(setting.device)))
        found = attempt(step, own)
        if own is not setting:  # it counts as a result of this machine, and says what it was measured on
            found = Record({**found.content, "device": setting.device.type, "measured_on": "cpu"}, found.files)
        pipe.send(found)
        gc.collect()
        forget_compiled()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def on_cpu(setting: Setting) -> Setting:
    """The same on the processor."""
    return Setting(torch.device("cpu"), setting.scale, setting.work, setting.end, setting.commit)


class Worker:
    """A process, the step that it is at, and what it said at its beginning."""

    def __init__(self, setting: Setting, alone: bool):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, setting, alone), daemon=False)
        self.process.start()
        theirs.close()
        self.step: Step | None = None
        self.begun: Record | None = None

    def end(self) -> None:
        """At once."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Crew:
    """The processes of a run.

    Args:
        setting: for all of them.
    """

    def __init__(self, setting: Setting):
        self.setting, self.most = setting, limits(setting.device)
        self.busy: list[Worker] = []
        self.idle: dict[bool, list[Worker]] = {True: [], False: []}  # by whether they have the card for themselves

    def at_work(self) -> list[Step]:
        return [worker.step for worker in self.busy if worker.step is not None]

    def begin(self, step: Step) -> None:
        """Send a step to a process that has nothing to do, or to a new one."""
        alone = step.lane in ("quiet", "card")
        worker = self.idle[alone].pop() if self.idle[alone] else Worker(self.setting, alone)
        worker.step, worker.begun = step, None
        self.busy.append(worker)
        worker.pipe.send(step)

    def heard(self) -> list[Record]:
        """Wait until a process says something, ends, or has to be ended; the records that come of it."""
        until = self.setting.left + GRACE
        wait([worker.pipe for worker in self.busy], timeout=max(0.0, until))
        found = []
        for worker in list(self.busy):
            try:
                if worker.pipe.poll():
                    found.append(self._said(worker, worker.pipe.recv()))
                elif self.setting.left < -GRACE:
                    found.append(self._lost(worker, "it did not stop when the minutes were over, and was killed"))
            except (EOFError, ConnectionError):
                worker.process.join()
                found.append(self._lost(worker, f"its process ended with status {worker.process.exitcode}"))
        return found

    def _said(self, worker: Worker, one: Record) -> Record:
        if one.state == "begun":
            worker.begun = one
            return one
        self.busy.remove(worker)
        if one.state == "failed":
            worker.end()
        else:
            self.idle[worker.step is not None and worker.step.lane in ("quiet", "card")].append(worker)
        worker.step = None
        return one

    def _lost(self, worker: Worker, why: str) -> Record:
        self.busy.remove(worker)
        worker.end()
        assert worker.step is not None
        if worker.begun is None:  # before its first word
            return record(worker.step.name, "failed", self.setting, {"date": ""}, Found(wrong=[why]))
        return Record({**worker.begun.content, "state": "failed", "wrong": [why]}, {})

    def dismiss(self) -> None:
        """Those that have nothing to do go by themselves, the others at once."""
        idle = [*self.idle[True], *self.idle[False]]
        for worker in idle:
            worker.pipe.send(None)
        for worker in idle:
            worker.process.join(timeout=GRACE)
        for worker in [*self.busy, *idle]:
            worker.end()
