"""Requests that wait together are computed together, in turn, and none of them is lost."""

import threading

import pytest
from serving import PATIENCE, wait_until

from experiments.serve.batching import Batcher, Programs
from experiments.serve.routes import RequestPlan
from transformer.errors import UserError


class Upper:
    """Writes texts in capitals, and fails for '!'; waits before each batch for the gate."""

    name = "upper"
    max_batch = 3

    def __init__(self, gate):
        self.gate, self.batches = gate, []

    def compute(self, group, payloads):
        self.batches.append(payloads)
        assert self.gate.wait(PATIENCE)
        for text in payloads:
            if "!" in text:
                raise UserError(f"{text} has !")
        return [text.upper() for text in payloads]


class Busy:
    """A batcher, whose first text waits for the gate; texts of a length are a group."""

    def __init__(self, programs):
        self.gate = threading.Event()
        self.upper, self.batcher = Upper(self.gate), Batcher(programs)
        self.thread = threading.Thread(target=self.batcher.run)
        self.first = self.submit("first")

    def submit(self, *texts):
        plan = RequestPlan([len(text) for text in texts], texts, lambda results: {})
        return self.batcher.submit(self.upper, plan)

    def open(self, *requests):
        """Returns the results of each request, once the gate is open."""
        self.gate.set()
        return [[future.result(PATIENCE) for future in futures] for futures in requests]

    def __enter__(self):
        self.thread.start()
        wait_until(lambda: self.upper.batches == [["first"]])
        return self

    def __exit__(self, *error):
        self.gate.set()
        self.batcher.close()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def programs():
    return Programs([])


@pytest.fixture
def busy(programs):
    with Busy(programs) as made:
        yield made


def test_what_waits_together_is_computed_together_by_group(busy):
    futures = [busy.submit(text) for text in ("ab", "cde", "fg", "hij")]
    assert busy.open(*futures) == [["AB"], ["CDE"], ["FG"], ["HIJ"]]
    assert busy.upper.batches == [["first"], ["ab", "fg"], ["cde", "hij"]]


def test_a_long_request_does_not_hold_up_a_short_one(busy):
    futures = busy.submit("l0", "l1", "l2", "l3", "l4"), busy.submit("s0")
    assert busy.open(*futures) == [["L0", "L1", "L2", "L3", "L4"], ["S0"]]
    assert busy.upper.batches == [["first"], ["l0", "s0", "l1"], ["l2", "l3", "l4"]]


def test_the_group_that_waits_behind_a_long_request_is_next(busy):
    busy.open(busy.submit(*["aa"] * 7), busy.submit("b"))
    assert busy.upper.batches == [["first"], ["aa"] * 3, ["b"], ["aa"] * 3, ["aa"]]


def test_a_text_that_fails_fails_alone(busy):
    good, bad, other = busy.submit("ab"), busy.submit("c!"), busy.submit("ef", "gh")
    assert busy.open(good, other) == [["AB"], ["EF", "GH"]]
    with pytest.raises(UserError, match="c! has !"):
        bad[0].result(PATIENCE)


def test_a_request_without_texts_has_an_answer(busy):
    assert busy.submit() == []


def test_a_request_that_is_cancelled_is_never_computed(busy):
    gone, other = busy.submit("gg"), busy.submit("kk")
    assert gone[0].cancel()
    assert busy.batcher.waiting == 1
    assert busy.first[0].cancel()  # which is being computed
    assert busy.open(other) == [["KK"]]
    assert busy.upper.batches == [["first"], ["kk"]]


def test_programs_are_compiled_while_no_request_waits_and_one_that_fails_is_logged(
    busy, programs, said
):
    def fail():
        order.append("fails")
        raise MemoryError("too\nlarge")

    order, futures = [], busy.submit("ab")
    futures[0].add_done_callback(lambda _: order.append("answered"))
    programs._programs = [(32, fail), (16, lambda: order.append("compiled"))]
    programs._common = 2
    assert programs.state() == {"status": "starting", "compiled": 0, "programs": 2}
    busy.open(futures)
    wait_until(lambda: programs.state()["status"] == "ready")
    assert order == ["answered", "fails", "compiled"]
    assert said == ["texts of 32 tokens: too large", "ready"]
    assert busy.open(busy.submit("cd")) == [["CD"]]
