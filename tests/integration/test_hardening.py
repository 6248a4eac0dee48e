"""What the compiler and the linker were asked to add to the program, read from the file itself."""
import platform
import subprocess

import pytest
from service import BLASD

pytestmark = pytest.mark.full


def readelf(*options):
    return subprocess.run(["readelf", "-W", *options, BLASD], capture_output=True, text=True, check=True).stdout


def test_the_program_is_hardened():
    header, segments, dynamic = readelf("-h"), readelf("-l"), readelf("-d")
    assert "DYN" in header, "PIE: it lies elsewhere at each start"
    assert "GNU_RELRO" in segments and "BIND_NOW" in dynamic, "the tables of the linker are read-only"
    stack = next(line for line in segments.splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack and "TEXTREL" not in dynamic and "RUNPATH" not in dynamic
    assert not any("RWE" in line for line in segments.splitlines() if "LOAD" in line), "no page is written and run"
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail" in symbols, "-fstack-protector-strong"
    assert "__snprintf_chk" in symbols and "__memcpy_chk" in symbols, "-D_FORTIFY_SOURCE"
    if platform.machine() == "x86_64":  # the C library's own start code has no such marks in Debian, so the file has not either
        code = subprocess.run(["objdump", "-d", "--disassemble=main", BLASD], capture_output=True, text=True, check=True).stdout
        assert "endbr64" in code, "-fcf-protection"
