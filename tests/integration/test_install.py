"""What `make install` puts in place is used from there: program, C client, manual pages, unit, completion."""
import os
import re
import shutil
import subprocess

import pytest
from service import ROOT, Service

pytestmark = pytest.mark.full

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


def test_the_static_library_shows_no_more(dest, tmp_path):
    """A program may have names that are the library's own, inside."""
    listed = run("nm", "-g", "--defined-only", f"{dest}{PREFIX}/lib/libblasd.a").stdout
    assert {line.split()[2] for line in listed.splitlines() if len(line.split()) == 3} == header_functions()
    (tmp_path / "program.c").write_text("#include <blasd.h>\nint blasd_dtype_code(void);\nint blasd_dtype_code(void) { return 0; }\n"
                                        "int main(void) { blasd_client_free(blasd_client_new(NULL)); return blasd_dtype_code(); }\n")
    done = run("gcc", f"-I{dest}{PREFIX}/include", tmp_path / "program.c", f"{dest}{PREFIX}/lib/libblasd.a", "-lcurl", "-ljansson",
               "-o", tmp_path / "program")
    assert done.returncode == 0 and run(tmp_path / "program").returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake here")
@pytest.mark.parametrize("target", ["blasd::blasd", "blasd::static"])
def test_cmake_finds_it(dest, tmp_path, target):
    version = (ROOT / "VERSION").read_text().strip()
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(program C CXX)\nfind_package(blasd {version} REQUIRED)\n"
        f"add_executable(program main.cc)\ntarget_link_libraries(program {target})\n")
    (tmp_path / "main.cc").write_text("#include <blasd.h>\n#include <cstdio>\n"
                                      "int main() { std::puts(blasd_library_version()); return !BLASD_VERSION_AT_LEAST(0, 2, 0); }\n")
    for words in (("cmake", "-S", tmp_path, "-B", tmp_path / "out", f"-DCMAKE_PREFIX_PATH={dest}{PREFIX}"),
                  ("cmake", "--build", tmp_path / "out")):
        done = run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert run(tmp_path / "out/program").stdout == version + "\n"
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.16)\nproject(program C)\n"
                                             "find_package(blasd 99.0 REQUIRED)\n")
    assert run("cmake", "-S", tmp_path, "-B", tmp_path / "newer", f"-DCMAKE_PREFIX_PATH={dest}{PREFIX}").returncode != 0


def test_the_manual_pages_render_and_name_every_option(dest):
    pages = sorted((dest / PREFIX[1:] / "share/man").glob("man*/*"))
    listed = run(f"{dest}{PREFIX}/bin/blasd", "help").stdout
    commands = set(re.findall(r"^  ([a-z-]+) ", listed, re.M)) - {"help", "version"}
    groups = set(re.findall(r"^/\* --- (\w+): ", (ROOT / "clients/c/blasd.h").read_text(), re.M))
    assert len(commands) > 10 and len(groups) >= 5
    assert {p.name for p in pages} == {"blasd.1", "libblasd.3"} | {f"blasd-{name}.1" for name in commands} | \
        {f"{name}.3" for name in groups | header_functions()}
    for page in pages:
        text = page.read_text().replace("\\-", "-")
        if page.name.startswith("blasd-"):
            command = page.name.removeprefix("blasd-").removesuffix(".1")
            said = run(f"{dest}{PREFIX}/bin/blasd", command, "--help").stdout
            for option in set(re.findall(r"^ +(?:-\w, +)?(--[a-z-]+)", said, flags=re.M)):
                assert f".B {option}" in text or f", {option}" in text, (page.name, option)
        if shutil.which("man") and not text.startswith(".so "):
            done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page)
            assert done.returncode == 0 and done.stderr == "" and len(done.stdout) > 300, done.stderr
        for document in re.findall(r"[\w/.-]*[a-z-]\.md", text):
            assert (dest / document.lstrip("/")).is_file(), (page.name, document)
    man3 = dest / PREFIX[1:] / "share/man/man3"
    for name in header_functions():
        page = (man3 / f"{name}.3").read_text()
        if page.startswith(".so "):
            page = (man3.parent / page.split()[1]).read_text()
        assert name in page.split(".SH SYNOPSIS")[0].replace("\\-", "-") or page.startswith(".TH LIBBLASD")


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


def unit_settings(dest):
    """[(setting, value)] of the unit."""
    lines = (dest / "here/lib/systemd/system/blasd.service").read_text().splitlines()
    return [tuple(line.split("=", 1)) for line in lines if "=" in line and not line.startswith("#")]


def test_tensors_in_shared_memory_outlive_a_stop_of_the_unit(tmp_path):
    """systemd would remove those of a user of its own making, and of any with RemoveIPC=: systemd.exec(5)."""
    install("install", "", tmp_path / "here")
    settings = dict(unit_settings(tmp_path))
    assert {settings.get(name, "no") for name in ("DynamicUser", "RemoveIPC")} == {"no"}
    made = (tmp_path / "here/lib/sysusers.d/blasd.conf").read_text()
    assert re.search(rf"^u {settings['User']} ", made, re.MULTILINE)


def test_the_unit_lets_its_parts_confine_themselves(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    install("install", "", tmp_path / "here")

    def calls(word):
        if not word.startswith("@"):
            return {word}
        lines = run("systemd-analyze", "syscall-filter", "--no-pager", word).stdout.split("\n")[1:]
        return set().union(*(calls(line.strip()) for line in lines if line.strip() and not line.strip().startswith("#")))

    allowed = set()
    for name, value in unit_settings(tmp_path):
        if name == "SystemCallFilter":
            named = set().union(*map(calls, value.lstrip("~").split()))
            allowed = allowed - named if value.startswith("~") else allowed | named
    used = set(re.findall(r"\bSYS_(\w+)", (ROOT / "src/main/confine.c").read_text())) | {"seccomp", "prctl", "prlimit64"}
    assert used - allowed == {"capset"}  # which who has no capabilities can do without


def test_completion_offers_commands_and_their_options(dest):
    script = f"{dest}{PREFIX}/share/bash-completion/completions/blasd"
    def offered(*words):
        line = f'source {script}; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _blasd; echo ${{COMPREPLY[@]}}'
        return run("bash", "-c", line).stdout.split()
    assert offered("blasd", "d") == ["devices"] and offered("blasd", "to") == ["top"]
    assert "--forget" in offered("blasd", "cancel", "--f")
    assert set(offered("blasd", "tensors", "")) >= {"put", "list", "get", "rm"} and offered("blasd", "tensors", "p") == ["put"]
    assert offered("blasd", "tensors", "--sh") == ["--sha256"]
    assert offered("blasd", "run", "so") == ["solve"] and {"matmul", "eigh", "--json"} <= set(offered("blasd", "submit", ""))
    assert set(offered("blasd", "keys", "")) >= {"add", "list", "revoke"}
    assert "--listen" in offered("blasd", "up", "--li") and "--name" in offered("blasd", "worker", "--n")
    # of several in one line of the help, too, and none of those that its prose speaks of
    assert set(offered("blasd", "up", "--tls")) == {"--tls-cert", "--tls-key", "--tls-client-ca"}
    assert set(offered("blasd", "api", "--jwt")) == {"--jwt-keys", "--jwt-issuer", "--jwt-audience"}
    assert set(offered("blasd", "up", "--insecure")) == {"--insecure-no-keys", "--insecure-no-tls"}
    assert offered("blasd", "notify", "--notify") == [] and offered("blasd", "top", "--url") == ["--url"]
    if shutil.which("zsh"):
        assert run("zsh", "-n", f"{dest}{PREFIX}/share/zsh/site-functions/_blasd").returncode == 0


def test_what_root_keeps_to_itself_is_no_matter(tmp_path):
    """A machine whose administrator has a umask of 077: others use what is installed, and packages of it are taken."""
    os.chmod(tmp_path, 0o755)
    before = os.umask(0o077)
    try:
        install("install", tmp_path)
        made = run("deploy/deb/build.sh", "build", tmp_path / "deb", cwd=ROOT) if shutil.which("dpkg-shlibdeps") else None
    finally:
        os.umask(before)
    top = tmp_path / PREFIX[1:].split("/")[0]
    assert [p for p in (top, *top.rglob("*")) if not p.is_symlink() and p.stat().st_mode & 0o004 == 0] == []
    if made is None:
        return
    assert made.returncode == 0, made.stderr
    for package in made.stdout.split():
        listed = run("dpkg-deb", "--contents", package).stdout.splitlines()
        assert listed and [line for line in listed if line[7] != "r"] == [], package


PURGE = """
mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mount -t tmpfs none /dev/shm
mkdir /var/lib/blasd && mount -t tmpfs none /var/lib/blasd
printf 0123456789abcdef > /var/lib/blasd/instance
mkdir /dev/shm/blasd-0123456789abcdef /dev/shm/blasd-other && touch /dev/shm/blasd-0123456789abcdef/blob
sh deploy/deb/blasd.postrm purge
echo "status $?" $(ls -A /var/lib/blasd /dev/shm)
"""


def test_purge_takes_a_disk_of_its_own(tmp_path):
    """What is mounted cannot be removed; that all in it is, is enough, and no error of the package."""
    begin = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if run(*begin, "mount -t tmpfs none /run").returncode != 0:
        pytest.skip("no mounts here")
    done = run(*begin, PURGE, cwd=ROOT)
    assert done.stdout.split() == ["status", "0", "/dev/shm:", "blasd-other", "/var/lib/blasd:"], done.stdout + done.stderr


def test_uninstall_leaves_no_file(tmp_path):
    install("install", tmp_path)
    install("uninstall", tmp_path)
    assert [p for p in tmp_path.rglob("*") if not p.is_dir()] == []
