"""Requests are computed in their order, and none of them is lost."""

import threading

import pytest
from serving import PATIENCE, wait_until

from experiments.serve.model_thread import Programs, Worker
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
        if "!" in payloads:
            raise UserError("a text is !")
        return [text.upper() for text in payloads]


@pytest.fixture
def busy():
    """A function that submits texts to a worker, which waits at a first text; and the worker."""
    gate, worker = threading.Event(), Worker(Programs([]))
    upper, thread = Upper(gate), threading.Thread(target=worker.run)

    def submit(*texts):
        return worker.submit(upper, RequestPlan([len(text) for text in texts], texts, dict))

    first = submit("first")
    thread.start()
    wait_until(lambda: upper.batches == [["first"]])
    yield submit, worker, upper, first
    gate.set()
    worker.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_texts_of_a_request_are_computed_together_by_group_and_requests_in_turn(busy):
    submit, _, upper, _ = busy
    several, none, other = submit("ab", "cde", "fg", "hi", "jk"), submit(), submit("lm")
    upper.gate.set()
    assert several.result(PATIENCE) == ["AB", "CDE", "FG", "HI", "JK"]
    assert (none.result(PATIENCE), other.result(PATIENCE)) == ([], ["LM"])
    assert upper.batches == [["first"], ["ab", "fg", "hi"], ["jk"], ["cde"], ["lm"]]


def test_a_request_that_fails_fails_alone_and_a_cancelled_one_is_never_computed(busy):
    submit, worker, upper, first = busy
    bad, gone, other = submit("!"), submit("gg"), submit("kk")
    assert worker.waiting == 3
    assert gone.cancel()
    assert worker.waiting == 2
    assert first.cancel()  # which is being computed
    upper.gate.set()
    assert other.result(PATIENCE) == ["KK"]
    with pytest.raises(UserError, match="a text is !"):
        bad.result(PATIENCE)
    assert upper.batches == [["first"], ["!"], ["kk"]]


def test_programs_are_compiled_while_no_request_waits_and_one_that_fails_is_logged(busy, said):
    def fail():
        order.append("fails")
        raise MemoryError("too\nlarge")

    submit, worker, upper, _ = busy
    order, programs, future = [], worker.programs, submit("ab")
    future.add_done_callback(lambda _: order.append("answered"))
    programs._programs = [(32, fail), (16, lambda: order.append("compiled"))]
    programs._common = 2
    assert programs.state() == {"status": "starting", "compiled": 0, "programs": 2}
    upper.gate.set()
    wait_until(lambda: programs.state()["status"] == "ready")
    assert order == ["answered", "fails", "compiled"]
    assert said == ["texts of 32 tokens: too large", "ready"]
    assert submit("cd").result(PATIENCE) == ["CD"]
