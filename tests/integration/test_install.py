"""What `make install` puts in place is used from there: program, C client, manual pages, unit, completion."""
import os
import re
import shutil
import subprocess

import pytest
from service import ROOT, Service

PREFIX = "/opt/blasd"


def run(*words, **how):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=600, **how)


def install(target, dest, prefix=PREFIX):
    done = run("make", "-s", "NVCC=", target, f"DESTDIR={dest}", f"PREFIX={prefix}", cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def dest(tmp_path_factory):
    path = tmp_path_factory.mktemp("dest")
    install("install", path)
    return path


def header_functions():
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "clients/c/blasd.h").read_text(), flags=re.S)
    return set(re.findall(r"\b(blasd_\w+)\(", text))


def compiled(dest, compiler, source, program):
    where = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": str(dest),
             "PKG_CONFIG_PATH": f"{dest}{PREFIX}/lib/pkgconfig"}
    flags = run("pkg-config", "--cflags", "--libs", "blasd", env=where)
    assert flags.returncode == 0, flags.stderr
    done = run(compiler, "-Wall", "-Werror", "-o", program, source, *flags.stdout.split())
    assert done.returncode == 0, done.stderr
    return {**os.environ, "LD_LIBRARY_PATH": f"{dest}{PREFIX}/lib"}


def test_the_example_of_the_c_client_runs_against_the_installed_program(dest, tmp_path):
    example = (ROOT / "clients/c/examples/client_example.c").read_text()
    (tmp_path / "example.c").write_text(example.replace('"clients/c/blasd.h"', "<blasd.h>"))
    env = compiled(dest, "gcc", tmp_path / "example.c", tmp_path / "example")
    assert run(f"{dest}{PREFIX}/bin/blasd", "--version").stdout.startswith("blasd ")
    service = Service(tmp_path / "service")
    service.program = [f"{dest}{PREFIX}/bin/blasd"]
    service.start()
    try:
        done = run(tmp_path / "example", service.url, env=env)
    finally:
        service.stop()
    assert done.returncode == 0 and "19 22" in done.stdout, done.stdout + done.stderr


def test_the_header_serves_a_program_in_cplusplus(dest, tmp_path):
    source = tmp_path / "program.cc"
    source.write_text('#include <blasd.h>\nint main() {\n'
                      '    blasd_client *client = blasd_client_new("http://127.0.0.1:1");\n'
                      '    blasd_client_free(client);\n    return client == nullptr;\n}\n')
    env = compiled(dest, "g++", source, tmp_path / "program")
    assert run(tmp_path / "program", env=env).returncode == 0
    assert "libblasd.so.0" in run("readelf", "-d", tmp_path / "program").stdout


def test_the_shared_library_shows_what_the_header_declares_and_no_more(dest):
    listed = run("nm", "-D", "--defined-only", f"{dest}{PREFIX}/lib/libblasd.so").stdout
    shown = {line.split()[2].split("@")[0] for line in listed.splitlines() if line.split()[1] != "A"}
    assert shown == header_functions() and len(shown) > 20


def test_the_manual_pages_render_and_name_every_option(dest):
    pages = sorted((dest / PREFIX[1:] / "share/man").glob("man*/*"))
    assert {p.name for p in pages} == {"blasd.1", "blasd-up.1", "blasd-api.1", "blasd-worker.1", "blasd-devices.1",
                                       "blasd-run.1", "libblasd.3"}
    for page in pages:
        text = page.read_text().replace("\\-", "-")
        if page.name.startswith("blasd-"):
            command = page.name.removeprefix("blasd-").removesuffix(".1")
            said = run(f"{dest}{PREFIX}/bin/blasd", command, "--help").stdout
            for option in set(re.findall(r"^ +(?:-\w, +)?(--[a-z-]+)", said, flags=re.M)):
                assert f".B {option}" in text or f", {option}" in text, (page.name, option)
        if shutil.which("man"):
            done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page)
            assert done.returncode == 0 and done.stderr == "" and len(done.stdout) > 300, done.stderr
    for name in header_functions():
        assert name in (dest / PREFIX[1:] / "share/man/man3/libblasd.3").read_text()


def test_the_unit_is_right_and_confined(tmp_path):
    install("install", "", tmp_path / "here")
    unit = tmp_path / "here/lib/systemd/system/blasd.service"
    assert f"ExecStart={tmp_path}/here/bin/blasd up" in unit.read_text()
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    done = run("systemd-analyze", "verify", "--man=no", unit)
    assert done.returncode == 0 and unit.name not in done.stderr, done.stderr
    done = run("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit)
    assert done.returncode == 0, done.stdout[-300:]


def test_completion_offers_commands_and_their_options(dest):
    script = f"{dest}{PREFIX}/share/bash-completion/completions/blasd"
    def offered(*words):
        line = f'source {script}; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _blasd; echo ${{COMPREPLY[@]}}'
        return run("bash", "-c", line).stdout.split()
    assert offered("blasd", "d") == ["devices"]
    assert "--listen" in offered("blasd", "up", "--li") and "--name" in offered("blasd", "worker", "--n")
    if shutil.which("zsh"):
        assert run("zsh", "-n", f"{dest}{PREFIX}/share/zsh/site-functions/_blasd").returncode == 0


def test_uninstall_leaves_no_file(tmp_path):
    install("install", tmp_path)
    install("uninstall", tmp_path)
    assert [p for p in tmp_path.rglob("*") if not p.is_dir()] == []
