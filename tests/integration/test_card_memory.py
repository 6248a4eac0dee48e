"""Inputs and results of a card are copied where their files lie; a driver that does not let it costs no job, and the log
says so once. The card is the stand-in that the CUDA backend's own tests use, which is as strict as a driver."""
import numpy as np
import pytest
from service import wait_for

REMARK = "some inputs and results are copied on the host"


def on_card(service, number, shape=(128, 512)):
    """A product whose operands and result are files of the store, which come again with the next one."""
    rng = np.random.default_rng(number)
    a, b = rng.standard_normal(shape), rng.standard_normal(shape[::-1])
    answer = service.post("matmul", {"a": a, "b": b}, form="safetensors", accept="safetensors", device="cuda")
    got = answer.safetensors()[0]["c"]
    assert np.allclose(got, a @ b, rtol=1e-12, atol=1e-10), number


def test_files_that_come_again(with_card):
    service = with_card().start()
    for number in range(12):
        on_card(service, number)
    on_card(service, 20, (640, 600))  # other sizes: files grow and are cut
    for number in range(30, 36):
        on_card(service, number, (number * 16, 8192 // number * 8))
    floats = [np.random.default_rng(7).standard_normal((4000, 20)).astype(np.float32) for _ in range(3)]
    for x in floats:
        y = (x @ np.arange(20) + 3).astype(np.float32)
        job = service.post("regression", {"x": x, "y": y}, form="safetensors", device="cuda").json()
        assert job["state"] == "succeeded" and job["execution"]["device"] == "cuda:0", job
    assert REMARK not in service.log_text()


@pytest.mark.parametrize("registers, why", [("no", "not supported"), ("writable", "mapped for reading")])
def test_a_driver_that_does_not_let_it(with_card, registers, why):
    service = with_card(BLASD_STANDIN_REGISTERS=registers).start()
    for number in range(6):
        on_card(service, number)
    wait_for(lambda: REMARK in service.log_text(), "the log says so", 60)
    for number in range(6):
        on_card(service, number)
    lines = [line for line in service.log_text().splitlines() if REMARK in line]
    assert len(lines) == 1 and why in lines[0] and "cuda:0" in lines[0], lines
