"""Requests that wait together are computed together, in turn, and none of them is lost."""

import asyncio
import json
import threading
from collections.abc import Callable

import pytest
from serving import PATIENCE, wait_until

from experiments.serving.batching import Batcher, FullError, Item, Job, Plan, Work
from transformer.errors import UserError


class Upper(Work):
    """Writes texts in capitals; texts of a length are a group, and '!' in one is a mistake.

    It keeps what it computed together, and waits before each batch until the gate is open, and
    before each plan until the door is.
    """

    name = "upper"
    most = 3

    def __init__(self):
        self.gate, self.door, self.batches = threading.Event(), threading.Event(), []
        self.gate.set()
        self.door.set()

    def plan(self, fields):
        assert self.door.wait(PATIENCE)
        if "?" in fields["texts"]:
            raise UserError("? cannot be planned")
        items = [Item(len(text), text) for text in fields["texts"]]
        return Plan(items, lambda results: json.dumps(results).encode())

    def compute(self, group, payloads):
        assert self.gate.wait(PATIENCE)
        self.batches.append(payloads)
        for text in payloads:
            if "!" in text:
                raise UserError(f"{text} has !")
        return [text.upper() for text in payloads]


def run(scenario: Callable, max_waiting: int = 99) -> tuple[Upper, list]:
    """Runs a scenario in an event loop, with a batcher in its thread; returns what was seen."""
    work, sizes = Upper(), []
    batcher = Batcher(max_waiting, lambda work, size: sizes.append(size))
    thread = threading.Thread(target=batcher.run)
    thread.start()
    try:
        asyncio.run(asyncio.wait_for(scenario(batcher, work), PATIENCE))
    finally:
        work.gate.set()
        batcher.close()
        thread.join(PATIENCE)
    assert not thread.is_alive()
    return work, sizes


async def held(batcher: Batcher, work: Upper):
    """A job that is being computed, behind a closed gate; others wait behind it."""
    work.gate.clear()
    first = batcher.submit(work, {"texts": ["first"]})
    while batcher.waiting:
        await asyncio.sleep(0.001)
    return first


async def opened(work: Upper, jobs: list) -> None:
    """Opens the gate once the jobs are planned."""
    while any(job.plan is None and not job.ended for job in jobs):
        await asyncio.sleep(0.001)
    work.gate.set()


def test_what_waits_together_is_computed_together_by_group():
    async def scenario(batcher, work):
        jobs = [await held(batcher, work)]
        jobs += [batcher.submit(work, {"texts": [text]}) for text in ("ab", "cde", "fg", "hij")]
        await opened(work, jobs)
        found = await asyncio.gather(*(job.future for job in jobs))
        assert [json.loads(each) for each in found] == [["FIRST"], ["AB"], ["CDE"], ["FG"], ["HIJ"]]

    work, sizes = run(scenario)
    assert work.batches == [["first"], ["ab", "fg"], ["cde", "hij"]]
    assert sizes == [1, 2, 2]


def test_a_long_request_does_not_hold_up_a_short_one():
    async def scenario(batcher, work):
        jobs = [await held(batcher, work)]
        long, short = [f"l{i}" for i in range(5)], ["s0"]
        jobs += [batcher.submit(work, {"texts": texts}) for texts in (long, short)]
        await opened(work, jobs)
        found = [json.loads(await job.future) for job in jobs]
        assert found[1:] == [["L0", "L1", "L2", "L3", "L4"], ["S0"]]

    work, _ = run(scenario)
    assert work.batches == [["first"], ["l0", "s0", "l1"], ["l2", "l3", "l4"]]


def test_the_group_that_waits_behind_a_long_request_is_next():
    async def scenario(batcher, work):
        jobs = [await held(batcher, work)]
        jobs += [batcher.submit(work, {"texts": texts}) for texts in (["aa"] * 7, ["b"])]
        await opened(work, jobs)
        await asyncio.gather(*(job.future for job in jobs))

    work, _ = run(scenario)
    assert work.batches == [["first"], ["aa"] * 3, ["b"], ["aa"] * 3, ["aa"]]


def test_a_text_that_fails_fails_alone():
    async def scenario(batcher, work):
        jobs = [await held(batcher, work)]
        jobs += [batcher.submit(work, {"texts": texts}) for texts in (["ab"], ["c!"], ["ef", "??"])]
        jobs.append(batcher.submit(work, {"texts": ["?"]}))
        work.gate.set()
        found = await asyncio.gather(*(job.future for job in jobs), return_exceptions=True)
        assert [found[1], found[3]] == [b'["AB"]', b'["EF", "??"]']
        assert [str(found[2]), str(found[4])] == ["c! has !", "? cannot be planned"]

    run(scenario)


def test_a_request_without_texts_has_an_answer():
    async def scenario(batcher, work):
        assert await batcher.submit(work, {"texts": []}).future == b"[]"

    assert run(scenario)[0].batches == []


def test_a_request_without_texts_has_ended_before_the_batcher_can_look_for_its_first_text():
    async def scenario():
        job, plans = Job(Upper(), {"texts": []}, asyncio.get_running_loop()), []
        end = job.end
        job.end = lambda answer: (plans.append(job.plan), end(answer))
        job.prepare()
        assert plans == [None]
        assert job.plan is not None
        assert await job.future == b"[]"

    asyncio.run(scenario())


def test_a_request_that_is_cancelled_is_never_computed():
    async def scenario(batcher, work):
        first = await held(batcher, work)
        gone, kept = (batcher.submit(work, {"texts": [text]}) for text in ("gg", "kk"))
        batcher.cancel(gone)
        assert batcher.waiting == 1
        batcher.cancel(first)  # which is being computed
        work.gate.set()
        assert await kept.future == b'["KK"]'
        assert not first.future.done()
        assert not gone.future.done()

    assert run(scenario)[0].batches == [["first"], ["kk"]]


def test_a_mistake_is_told_while_another_request_is_computed():
    async def scenario(batcher, work):
        first = await held(batcher, work)
        with pytest.raises(UserError, match="cannot be planned"):
            await batcher.submit(work, {"texts": ["?"]}).future
        assert not first.future.done()
        work.gate.set()
        await first.future

    run(scenario)


def test_what_is_for_idle_times_waits_for_requests_that_are_not_planned_yet():
    order = []

    async def scenario(batcher, work):
        work.door.clear()
        job = batcher.submit(work, {"texts": ["ab"]})
        batcher.when_idle(lambda: order.append(len(work.batches)))
        await asyncio.sleep(0.05)
        assert order == []
        work.door.set()
        await job.future
        while not order:
            await asyncio.sleep(0.001)

    run(scenario)
    assert order == [1]  # after the batch


def test_an_error_while_no_request_waits_does_not_end_the_thread(said):
    def fail():
        raise OSError("the log is closed")

    async def scenario(batcher, work):
        batcher.when_idle(fail)
        while not said:
            await asyncio.sleep(0.001)
        assert await batcher.submit(work, {"texts": ["ab"]}).future == b'["AB"]'

    run(scenario)
    assert said == ["an error while no request waited:"]


def test_a_full_queue_refuses_and_then_takes_again():
    async def scenario(batcher, work):
        jobs = [await held(batcher, work)]
        jobs += [batcher.submit(work, {"texts": [text]}) for text in ("ab", "cd")]
        with pytest.raises(FullError):
            batcher.submit(work, {"texts": ["ef"]})
        work.gate.set()
        await asyncio.gather(*(job.future for job in jobs))
        assert await batcher.submit(work, {"texts": ["ef"]}).future == b'["EF"]'

    run(scenario, max_waiting=2)


def test_what_is_for_idle_times_waits_for_requests():
    order = []

    async def scenario(batcher, work):
        first = await held(batcher, work)
        batcher.when_idle(lambda: order.append("idle"))
        second = batcher.submit(work, {"texts": ["ab"]})
        second.future.add_done_callback(lambda _: order.append("answered"))
        work.gate.set()
        await asyncio.gather(first.future, second.future)
        while len(order) < 2:
            await asyncio.sleep(0.001)

    work, _ = run(scenario)
    assert work.batches == [["first"], ["ab"]]
    assert sorted(order) == ["answered", "idle"]


def test_waiting_for_a_condition_that_never_holds_fails(monkeypatch):
    monkeypatch.setattr("serving.PATIENCE", 0)
    with pytest.raises(AssertionError, match="never holds"):
        wait_until(lambda: False)  # the control
