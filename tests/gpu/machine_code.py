"""Whether the code of kernels that are to keep all they work on in registers does: instructions that read local memory (LDL:
a spilled register, or an array that was given an address) and by generic addresses (LD: a pointer of which the compiler does not
know whether to shared or to global memory), counted in what `cuobjdump --dump-sass` says. Needs no GPU.

    machine_code.py FILE [--cuobjdump FILE]      FILE: blasd_cuda.so, or an object of nvcc's

Exit: 0 as they are to be; 1 not, or one of them is not there; 3 there is no cuobjdump.
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys

# kernel: the most of each. solve_small of 25 to 32 unknowns in float32 spills a little (50 instructions of 12,000)
MOST = {"solve_small": {"LD": 0, "LDL": 40}}
SHOWN = ["LDL", "STL", "LD", "ST", "LDS", "LDG", "CALL"]


def counted(lines):
    """{(architecture, kernel): how many of each instruction}"""
    out, arch, now = {}, "?", None
    for line in lines:
        if match := re.match(r"arch = (sm_\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function : (\S+)", line):
            now = out.setdefault((arch, match[1]), collections.Counter())
        elif now is not None and (match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)", line)):
            now[match[1]] += 1
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump")
    args = parser.parse_args()
    if not os.access(args.cuobjdump, os.X_OK):
        print(f"machine_code: not tried, for there is no cuobjdump at {args.cuobjdump}")
        return 3
    with subprocess.Popen([args.cuobjdump, "--dump-sass", args.file], stdout=subprocess.PIPE, text=True) as dump:
        code = counted(dump.stdout)
    if dump.returncode != 0:
        return 1
    names = subprocess.run(["c++filt"], input="\n".join(name for _, name in code), capture_output=True, text=True,
                           check=True).stdout.split("\n")
    bad, seen = 0, set()
    print(f"{'kernel':<44} {'card':>7} {'all':>6} " + " ".join(f"{name:>5}" for name in SHOWN))
    for (arch, _), name in sorted(zip(code, names), key=lambda pair: pair[1]):
        kernel = re.sub(r"^void ", "", name).split("(")[0]
        counts = code[arch, _]
        print(f"{kernel[:44]:<44} {arch:>7} {sum(counts.values()):>6} " + " ".join(f"{counts[one]:>5}" for one in SHOWN))
        for one, most in MOST.get(kernel.split("<")[0], {}).items():
            seen.add(kernel.split("<")[0])
            if counts[one] > most:
                print(f"    {counts[one]} {one}, and {most} at most are to be there")
                bad += 1
    for kernel in sorted(set(MOST) - seen):
        print(f"    there is no {kernel}")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
