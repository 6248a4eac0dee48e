"""The Celery side of the FastAPI + Redis + Celery peer: the application and its one task.

BENCH_BROKER and BENCH_BACKEND name the Redis. Acknowledgement is Celery's default (before the task runs), which
is its fastest and loses the task with its worker.
"""
import os

import numpy as np
import orjson
from celery import Celery

celery = Celery("bench", broker=os.environ["BENCH_BROKER"], backend=os.environ["BENCH_BACKEND"])
celery.conf.update(task_serializer="json", result_serializer="json", accept_content=["json"], task_ignore_result=False,
                   worker_prefetch_multiplier=64, task_track_started=False, result_expires=3600,
                   worker_send_task_events=False, task_send_sent_event=False)


@celery.task(name="matmul")
def matmul(body):
    inputs = orjson.loads(body)["inputs"]
    c = np.matmul(np.array(inputs["a"], float), np.array(inputs["b"], float))
    return orjson.dumps({"c": c}, option=orjson.OPT_SERIALIZE_NUMPY).decode()
