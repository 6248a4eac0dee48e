"""Fixtures: one service shared by the tests that break nothing, and a maker of services for those that do."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "integration"))

import service as harness  # noqa: E402
from service import BLASD, ROOT, Service, wait_for  # noqa: E402

# A shell that runs the tests in the background, or nohup, has them, and so the services, ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure():
    """Tests of a program that is older than its sources would say nothing of these.

    BLASD_TEST_DEVICE=cuda: jobs whose tests name no device go there, as tests/gpu/run.sh wants."""
    if not BLASD.exists():
        pytest.exit(f"{BLASD} is missing: run make, or set BLASD to a program", 2)
    source = None if "BLASD" in os.environ else harness.newer_source(BLASD)
    if source is not None:
        pytest.exit(f"{BLASD} is older than {source}: run make, or set BLASD to the program that is to be tested", 2)
    device = os.environ.get("BLASD_TEST_DEVICE")
    if not device:
        return
    from blasd import calls
    options, post = calls.Options.__init__, Service.post

    def chosen(self, priority=None, deadline_ms=None, asked=None, *rest, **more):
        options(self, priority, deadline_ms, asked or device, *rest, **more)
    calls.Options.__init__ = chosen
    Service.post = lambda self, *args, **more: post(self, *args, **{"device": device, **more})
    start = Service.start

    def started(self, *args, **more):
        start(self, *args, **more)
        wait_for(lambda: any(d["class"] == device for d in self.request("GET", "/devices").json()["devices"]), "the device")
        return self
    Service.start = started


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """A test with a service of its own goes to any worker that is free; others stay with those of their file, whose fixtures
    they share. Long ones come first, for the end of one is else all that is waited for."""
    for item in items:
        if item.path.parent.name == "attack" or {"venv", "browse", "prometheus"} & set(item.fixturenames):  # from a registry
            item.add_marker("full")
        ours = [each[-1] for each in item._fixtureinfo.name2fixturedefs.values() if str(ROOT) in each[-1].func.__code__.co_filename]
        if not {"make_service", "with_card"} & set(item.fixturenames) or any(each.scope in ("module", "class") for each in ours):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=lambda item: (item.get_closest_marker("alone") is not None, item.get_closest_marker("full") is None))


@contextlib.contextmanager
def locked(path, how):
    with open(path, "w") as file:
        fcntl.flock(file, how)
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """While a test marked `alone` runs, those of other workers wait. It asks at the gate, so that no new one overtakes it."""
    if not hasattr(item.config, "workerinput"):
        yield
        return
    folder = item.config._tmp_path_factory.getbasetemp().parent  # of all workers
    with contextlib.ExitStack() as held:
        with locked(folder / "gate", fcntl.LOCK_EX):
            held.enter_context(locked(folder / "others", fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH))
        yield


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    shared = Service(tmp_path_factory.mktemp("service")).start()
    yield shared
    shared.stop()


@pytest.fixture
def client(service):
    """The Python client."""
    import blasd
    with blasd.Client(service.url) as one:
        yield one


@pytest.fixture
def default(service):
    """blasd.default's client is one of the shared service."""
    import blasd.default
    blasd.default.set_client(blasd.Client(service.url))
    yield
    blasd.default.set_client(None)


@pytest.fixture(scope="module")
def sharing(tmp_path_factory):
    """One that takes files: `blasd up --share`."""
    folder = tmp_path_factory.mktemp("sharing")
    shared = Service(folder, "--share").start()
    yield shared
    shared.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def files(tmp_path):
    """Operands for the command line: one matrix, under two names."""
    np.save(tmp_path / "a.npy", np.array([[1.5, 2], [3, 4]]))
    return [f"a={tmp_path}/a.npy", f"b={tmp_path}/a.npy"]


@pytest.fixture
def with_card(tmp_path, monkeypatch):
    """A maker of services whose blasd finds beside it the stand-in of a card that the CUDA backend's own tests use."""
    folder, made, standin = tmp_path / "bin", [], harness.BLASD.parent / "standin"
    folder.mkdir()
    for file in (harness.BLASD, standin / "blasd_cuda.so", standin / "libcuda.so.1"):
        shutil.copy2(file, folder)
    monkeypatch.setattr(harness, "BLASD", folder / "blasd")

    def make(*options, **env):
        one = Service(tmp_path / f"service{len(made)}", *options, env={"LD_LIBRARY_PATH": str(folder), **env})
        one.bin = folder
        made.append(one)
        return one
    yield make
    for one in made:
        one.stop(check=False)


@pytest.fixture(scope="session")
def venv():
    """Gives the folder of a virtual environment with programs that others wrote, from PyPI: venv("inference")."""
    def make(group):
        folder = pathlib.Path(BLASD).resolve().parent / f"test-venv-{group}"
        made = subprocess.run([ROOT / "bench/peers/make-venv.sh", group, folder], capture_output=True, text=True,
                              timeout=1000, check=False)
        if made.returncode != 0:
            pytest.skip(f"the registry of packages cannot be reached, or lacks them: {made.stderr.strip()}")
        return folder
    return make


@pytest.fixture(scope="session")
def browse(venv):
    """browse(scenario, service, **wanted): what page_driver.py says of it."""
    for program in ("/usr/bin/chromium", "/usr/bin/chromedriver"):
        if not pathlib.Path(program).exists():
            pytest.skip(f"{program} is not installed: Debian has it as a package (deploy/install-packages.sh test), Ubuntu as a snap alone")
    python = venv("browser") / "bin" / "python"

    def run(scenario, service, **wanted):
        done = subprocess.run([python, ROOT / "tests/integration/page_driver.py", scenario, f"{service.url}/", json.dumps(wanted)],
                              capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)
    return run


@pytest.fixture(scope="session")
def prometheus():
    """Gives the folder of Debian's promtool and prometheus, which are of one package until Debian 13. Installing that
    would start a server that everybody can reach, so it is only unpacked."""
    folder = pathlib.Path(BLASD).resolve().parent / "test-prometheus"
    folder.mkdir(parents=True, exist_ok=True)
    got = subprocess.run(["flock", folder, "sh", "-c", "test -x promtool || { apt-get download prometheus && { test -z \"$(apt-cache search '^promtool$')\""
                          " || apt-get download promtool; } && for i in *.deb; do dpkg-deb -x $i unpacked; done"
                          " && mv unpacked/usr/bin/* . && rm -rf unpacked *.deb; }"],
                         cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if got.returncode != 0:
        pytest.skip(f"the package prometheus cannot be had: {got.stderr.strip()[-300:]}")
    return folder


@pytest.fixture
def make_service(tmp_path):
    made = []

    def make(*options, env=None, start=True):
        one = Service(tmp_path / f"service{len(made)}", *options, env=env)
        made.append(one)
        return one.start() if start else one
    yield make
    for one in made:
        one.stop(check=False)


# --- what is said of a failure ------------------------------------------------------------------------------------

LOG_LINES = 40  # of each log, and of each text captured
ABOUT_REFUSALS = re.compile(r" job refused: |\d+ lines about jobs were left out \(limit log_jobs\)")


def brief(lines, first=0, last=LOG_LINES):
    """The first and last of the lines, without those about refused jobs, of which there are hundreds a second."""
    told, refusals = [], 0
    for line in [*lines, None]:
        if line is not None and ABOUT_REFUSALS.search(line):
            refusals += 1
            continue
        if refusals:
            told.append(f"[... {refusals} lines about jobs that were refused]")
        refusals = 0
        if line is not None:
            told.append(line)
    left_out = len(told) - first - last
    return told if left_out <= 0 else [*told[:first], f"[... {left_out} lines]", *told[len(told) - last:]]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """The ends of the services' logs stand beside the failure they explain."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    item.keeps_folder = True
    value = item.funcargs.get("service")
    if isinstance(value, Service):
        report.sections.append(("service log", value.log_text()))
    folder = item.funcargs.get("tmp_path")
    if folder is not None:
        for log in sorted(log for name in ("service*", "home", "redis") for log in folder.glob(f"{name}/log")):
            report.sections.append((f"log of {log.parent.name}", log.read_text(errors="replace")))
    report.sections = [(name, "\n".join(brief(text.splitlines()))) for name, text in report.sections]
    for entry in getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", ()):
        entry.lines = brief(entry.lines, first=20)  # a message may end with a log


def line_of(report):
    """The line of the test's file where it failed, the place itself where that is another, and the first line of why."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:  # it could not be read, or its process ended
        return ([line for line in str(report.longrepr).splitlines() if line.strip()] or ["for no reason told"])[-1].strip()
    its_file = os.path.basename(report.nodeid.split("::")[0])
    places = [place for entry in report.longrepr.reprtraceback.reprentries if (place := getattr(entry, "reprfileloc", None))]
    where = [f"line {place.lineno}" for place in places if os.path.basename(place.path) == its_file][-1:]
    if os.path.basename(crash.path) != its_file:
        where.append(f"{crash.path.removeprefix(f'{ROOT}/')}:{crash.lineno}")
    return f"{', '.join(where)}: {(crash.message.splitlines() or [''])[0]}"


def pytest_terminal_summary(terminalreporter):
    """Behind all logs, so that the last lines of a long run say what has failed: two for each."""
    reports = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
    if reports:
        terminalreporter.section("failed")
    names = []
    for report in reports:
        when = getattr(report, "when", None)
        name = re.sub(r"@test_\w+$", "", terminalreporter.config.cwd_relative_nodeid(report.nodeid))  # without xdist's group
        names.append(name)
        terminalreporter.write_line(f"FAILED {name}{f' ({when})' if when in ('setup', 'teardown') else ''}")
        terminalreporter.write_line(f"    {line_of(report)[:400]}")
    if "BLASD_TEST_FAILED" in os.environ:  # for tests/run-integration.sh
        pathlib.Path(os.environ["BLASD_TEST_FAILED"]).write_text("".join(f"{name}\n" for name in dict.fromkeys(names)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    """A service leaves 130 MB and more; all of the suite's would be 26 GB. Only a failed test's are of use."""
    yield
    folder = item.funcargs.get("tmp_path") if hasattr(item, "funcargs") else None
    if folder is not None and not hasattr(item, "keeps_folder"):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_sessionfinish(session, exitstatus):
    """The shared services', likewise."""
    factory = getattr(session.config, "_tmp_path_factory", None)
    if exitstatus == 0 and factory is not None:
        shutil.rmtree(factory.getbasetemp(), ignore_errors=True)


@pytest.fixture(scope="session")
def scale():
    """How many times as much as in the suite: `make attack SCALE=50`."""
    return int(os.environ.get("BLASD_ATTACK_SCALE", "1"))
