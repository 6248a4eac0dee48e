"""The API's description, judged by programs that others wrote: a validator, a generator of clients, a tester."""
import json
import subprocess
import sys
import textwrap

import pytest
from service import API, ROOT

pytestmark = pytest.mark.full

CLIENT = textwrap.dedent("""
    import sys
    from generated import Client
    from generated.api.default import get_job, submit_job
    from generated.models import Job, MatmulInputs, MatmulJob, MatmulJobOp, MatmulParams, Priority, Problem

    client = Client(base_url=sys.argv[1])
    job = MatmulJob(op=MatmulJobOp.MATMUL, inputs=MatmulInputs(a=[[1, 2], [3, 4]], b=[[5], [6]]),
                    params=MatmulParams(alpha=2, transpose_a=True), priority=Priority.HIGH)
    answer = submit_job.sync(client=client, body=job, wait=30)
    assert isinstance(answer, Job), answer
    state: str = answer.state
    assert state == "succeeded"
    assert answer.outputs["c"].data == [[46], [68]]
    again = get_job.sync(answer.id, client=client)
    assert isinstance(again, Job) and again.timing.total_ms == answer.timing.total_ms
    refused = submit_job.sync(client=client, body=MatmulJob(op=MatmulJobOp.MATMUL, inputs=MatmulInputs(a=1, b=1)))
    assert isinstance(refused, Problem) and refused.code == "invalid_shape", refused
""")


def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False, **more)
    return done.returncode, done.stdout + done.stderr


def test_the_description_is_valid(venv):
    status, said = run([venv("openapi") / "bin/openapi-spec-validator", ROOT / "api/openapi.json"])
    assert status == 0, said


def test_a_generated_client_is_typed(venv, service, tmp_path):
    """openapi-python-client writes it; mypy knows which parameters and inputs an operation has."""
    python = venv("openapi") / "bin"
    status, said = run([python / "openapi-python-client", "generate", "--url", f"{service.url}/openapi.json", "--meta", "none",
                        "--output-path", tmp_path / "generated"])
    assert status == 0, said
    (tmp_path / "use.py").write_text(CLIENT)
    mypy = [python / "python", "-m", "mypy", "--cache-dir=/dev/null", "--strict", "--follow-imports=silent", "use.py"]
    status, said = run(mypy, cwd=tmp_path)
    assert status == 0, said
    status, said = run([python / "python", "use.py", service.url], cwd=tmp_path)
    assert status == 0, said
    for wrong in (CLIENT.replace("transpose_a=True", "transpose_x=True"), CLIENT.replace("a=[[1, 2], [3, 4]], ", ""),
                  CLIENT.replace("alpha=2", 'alpha="two"'), CLIENT.replace("Priority.HIGH", '"urgent"')):
        (tmp_path / "use.py").write_text(wrong)
        status, said = run(mypy, cwd=tmp_path)
        assert status != 0 and "use.py" in said, said


def test_each_operation_s_inputs_and_parameters_are_described(service):
    for op in service.request("GET", "/ops").json()["ops"]:
        title = op["name"].capitalize()
        schemas = API.document["components"]["schemas"]
        inputs, params = schemas[f"{title}Inputs"], schemas[f"{title}Params"]
        assert list(inputs["properties"]) == [port["name"] for port in op["inputs"]]
        assert inputs["required"] == [port["name"] for port in op["inputs"] if not port["optional"]]
        assert list(params["properties"]) == [param["name"] for param in op["params"]]
        for param in op["params"]:
            described = params["properties"][param["name"]]
            API.validate(described, param["default"])
            if param["type"] == "choice":
                assert described["enum"] == param["choices"]
        job = {"op": op["name"], "inputs": dict.fromkeys(inputs["required"], [[1]]), "params": {}}
        API.validate({"$ref": "#/components/schemas/JobRequest"}, job)
        for wrong in ({**job, "op": "nothing"}, {**job, "params": {"nothing": 1}}, {**job, "nothing": 1}, {**job, "inputs": {}}):
            with pytest.raises(Exception, match="not valid under any|is not"):
                API.validate({"$ref": "#/components/schemas/JobRequest"}, wrong)


def test_schemathesis(venv, sharing, tmp_path):
    """All of its checks on requests drawn from the description, within bounds: no 5xx, no answer that is not described."""
    config = ROOT / "tests/integration/clients/schemathesis.toml"
    status, said = run([venv("openapi") / "bin/schemathesis", "--config-file", config, "run", f"{sharing.url}/openapi.json",
                        "--checks", "all", "--max-examples", "10", "--seed", "21", "--phases", "examples,coverage,fuzzing",
                        "--generation-database", "none", "--no-color"], cwd=tmp_path)
    assert status == 0, said[-6000:]
    assert sharing.request("GET", "/health/ready").status == 200
