"""Fixtures: one service shared by the tests that break nothing, and a maker of services for those that do."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "integration"))

from service import BLASD, ROOT, Service, wait_for  # noqa: E402

# A shell that runs the tests in the background, or nohup, has them, and so the services, ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure():
    """BLASD_TEST_DEVICE=cuda: jobs whose tests name no device go there, as tests/gpu/run.sh wants."""
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


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    shared = Service(tmp_path_factory.mktemp("service")).start()
    yield shared
    shared.stop()


@pytest.fixture(scope="module")
def sharing(tmp_path_factory):
    """One that takes files: `blasd up --share`."""
    folder = tmp_path_factory.mktemp("sharing")
    shared = Service(folder, "--share").start()
    yield shared
    shared.stop()
    shutil.rmtree(folder, ignore_errors=True)


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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """The services' logs stand beside the failure they explain."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed:
        return
    item.keeps_folder = True
    for name in ("service", "make_service"):
        value = item.funcargs.get(name)
        if isinstance(value, Service):
            report.sections.append(("service log", value.log_text()))
    folder = item.funcargs.get("tmp_path")
    if folder is not None:
        for log in sorted(folder.glob("service*/log")):
            report.sections.append((f"log of {log.parent.name}", log.read_text(errors="replace")[-8000:]))


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
