"""The Python client on an event loop: the same methods, hundreds of jobs in flight."""
import asyncio
import gc
import socket

import blasd
import numpy as np
import pytest
from test_python_in_flight import slow

RNG = np.random.default_rng(21)


def test_hundreds_of_jobs_on_one_loop(service):
    async def main():
        async with blasd.AsyncClient(service.url) as client:
            a = RNG.standard_normal((6, 6))
            results = await asyncio.gather(*[client.matmul(a, a * i) for i in range(300)])
            assert all(np.allclose(c, i * (a @ a)) for i, c in enumerate(results))
            jobs = [await client.submit("matmul", a=a, b=a * i) for i in range(20)]
            assert all([np.allclose((await job)["c"], i * (a @ a)) for i, job in enumerate(jobs)])
            big = RNG.standard_normal((1500, 1500))
            assert np.array_equal(await client.matmul(big, np.eye(1500)), big)
            assert (await client.regression(a, a[:, 0]))["coef"].shape == (6,)
            assert (await client.distance(a)).shape == (6, 6) and (await client.solve(a, a)).shape == (6, 6)
            assert await client.ready() and len(await client.ops()) >= 4 and await client.devices()
            assert [job.id for job in await client.jobs(limit=3)] and (await client.job(jobs[0].id)).state == "succeeded"
            got = [r["c"][0, 0] async for r in client.map("matmul", ({"a": [[1.0]], "b": [[float(i)]]} for i in range(100)))]
            assert got == list(range(100))
            return await client.run("matmul", a=a, b=a)
    assert asyncio.run(main())["c"].flags.writeable


def test_errors_and_cancels_on_a_loop(service):
    async def main():
        async with blasd.AsyncClient(service.url) as client:
            with pytest.raises(blasd.SingularMatrix):
                await client.solve(np.ones((2, 2)), np.ones(2))
            with pytest.raises(blasd.InputError):
                await client.matmul(np.ones((2, 3)), np.ones((2, 3)))
            job = slow(service)
            task = asyncio.ensure_future(client.run("regression", **job))
            while not [j for j in await client.jobs(state="running") if j.document["op"] == "regression"]:
                await asyncio.sleep(0.05)
            found = [j for j in await client.jobs(state="running") if j.document["op"] == "regression"]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for j in found:
                await j.wait(60)
            assert [j.state for j in found] == ["cancelled"] * len(found)
            with pytest.raises(blasd.Timeout):
                await client.run("regression", timeout=0.2, **slow(service))
            queued = await client.submit("regression", **slow(service))
            assert await queued.cancel() is True and queued.state == "cancelled"
    asyncio.run(main())


def test_a_loop_and_a_service_that_is_away():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

    async def main():
        async with blasd.AsyncClient(url) as client:
            with pytest.raises(blasd.ConnectionError):
                await client.ops()
            assert await client.ready() is False
    asyncio.run(main())


def test_an_answer_that_never_comes():
    """A lost connection never hangs past its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(blasd.Timeout):
            blasd.Client(url, timeout=0.3).ops()

        async def main():
            async with blasd.AsyncClient(url, timeout=0.3) as client:
                await client.ops()
        with pytest.raises(blasd.Timeout):
            asyncio.run(main())


def test_what_is_given_up_while_it_is_sent_leaves_no_word():
    """asyncio writes of errors that nobody took; here they are of answers that nobody waits for."""
    said = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
        with socket.create_server(("127.0.0.1", 0)) as deaf:  # reads nothing
            async with blasd.AsyncClient(f"http://127.0.0.1:{deaf.getsockname()[1]}") as client:
                job = asyncio.ensure_future(client.matmul(np.zeros((2000, 2000)), np.zeros((2000, 2000))))
                taken, _ = await asyncio.to_thread(deaf.accept)
                with taken:
                    await asyncio.to_thread(taken.recv, 1, socket.MSG_PEEK)
                    job.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await job
        gc.collect()
    asyncio.run(main())
    gc.collect()
    assert said == []


def test_nothing_is_smuggled_into_a_request(service, client):
    """An id or a key that comes from somebody else ends no line of the request, in either client."""
    bad = ("x HTTP/1.1\r\nHost: a\r\n\r\nGET /ops", "a\nb", "a b\r\n")

    async def main():
        async with blasd.AsyncClient(service.url) as one:
            for text in bad:
                with pytest.raises(ValueError):
                    await one.job(text)
                with pytest.raises(ValueError):
                    await one.submit("matmul", a=[[1.0]], b=[[1.0]], idempotency_key=text + "\r\n")
            assert await one.ready()
    asyncio.run(main())
    for text in bad:
        with pytest.raises((ValueError, blasd.Error)):
            client.job(text)
        with pytest.raises((ValueError, blasd.Error)):
            client.submit("matmul", a=[[1.0]], b=[[1.0]], idempotency_key=text + "\r\n")


def test_arrays_of_an_async_client_in_shared_memory(sharing):
    async def main():
        async with blasd.AsyncClient(sharing.url, share=True) as client:
            arrays = await client.shared(a=((3, 3), "float64"), b=((3, 3), "float64"))
            arrays["a"][...], arrays["b"][...] = 2, np.eye(3)
            assert np.array_equal((await client.run("matmul", **arrays))["c"], arrays["a"])
        async with blasd.AsyncClient(sharing.url) as client:
            with pytest.raises(ValueError, match="share=True"):
                await client.shared(a=((3, 3), "float64"))
    asyncio.run(main())


def test_decompositions_of_both_clients(service):
    a, b = RNG.standard_normal((6, 3)), RNG.standard_normal(6)
    with blasd.Client(service.url) as client:
        x = client.lstsq(a, b, timeout=60).x
        assert client.eigh(a.T @ a, priority="high").eigenvalues.shape == (3,)

    async def all_of_them():
        async with blasd.AsyncClient(service.url) as client:
            return await asyncio.gather(client.lstsq(a, b), client.svd(a), client.qr(a), client.cholesky(a.T @ a),
                                        client.eigvalsh(a.T @ a))
    fit, values, qr, factor, eigenvalues = asyncio.run(all_of_them())
    assert np.array_equal(fit.x, x) and np.allclose(values.S**2, eigenvalues[::-1])
    assert np.allclose(abs(qr.R.T), abs(factor))
