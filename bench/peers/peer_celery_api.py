"""The HTTP side of the FastAPI + Redis + Celery peer: submit and poll.

    POST /jobs -> 202, Location: /jobs/ID        GET /jobs/ID -> {"state":"queued"} or {"state":"succeeded","result":…}

The body goes to the task as it came, without being parsed twice. Takes peer_fastapi.py's
`--processes` and prints `ready http://127.0.0.1:PORT`.
"""
import peer_fastapi
from fastapi import FastAPI, Request, Response
from peer_celery_tasks import celery, matmul

app = FastAPI(openapi_url=None)


@app.post("/jobs")
async def submit(request: Request):
    job = matmul.delay((await request.body()).decode())
    return Response(b'{"state":"queued"}', 202, {"Location": "/jobs/" + job.id}, "application/json")


@app.get("/jobs/{job_id}")
async def job_state(job_id: str):
    result = celery.AsyncResult(job_id)
    if not result.ready():
        return Response(b'{"state":"queued"}', media_type="application/json")
    if not result.successful():
        return Response(b'{"state":"failed"}', media_type="application/json")
    return Response('{"state":"succeeded","result":' + result.result + "}", media_type="application/json")


if __name__ == "__main__":
    peer_fastapi.app = app
    peer_fastapi.main()
