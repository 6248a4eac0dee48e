"""Whether every launch of the tests over the shim fits the cards that blasd_cuda.so holds code for: what each kernel takes of
registers and static shared memory, as `cuobjdump --dump-resource-usage` reads it from the code, beside how many threads and how
much dynamic shared memory the tests launched it with (BLASD_SHIM_LAUNCHES; the largest of each). Needs no GPU.

    launches.py BLASD_CUDA_SO PROGRAM...        --cuobjdump FILE: that one

Exit: 0 all fit; 1 some do not, or a launched kernel has no code; 3 there is no cuobjdump.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

REGISTERS = 65536  # of a multiprocessor, on all these cards
RESERVED = 1024  # shared memory of each block that is the system's, and from 9.0 on stands in what cuobjdump counts
SHARED = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99}  # KiB a block may have


def plain(name):
    """A demangled name as both compilers would write it."""
    name = re.sub(r"^void |\bstruct |\(anonymous namespace\)::|\[clone [^]]*\]|\s", "", name)
    return name.replace("unsignedlonglong", "unsignedlong").replace("longlong", "long")


def demangled(text):
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout


def launched(programs):
    """{kernel: (threads, dynamic bytes)}, the most of each."""
    most = {}
    for program in programs:
        with tempfile.TemporaryDirectory() as folder:
            record = os.path.join(folder, "launches")
            done = subprocess.run([program], env={**os.environ, "BLASD_SHIM_LAUNCHES": record}, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"{program} failed:\n{done.stderr[-2000:]}")
            lines = [line.split() for line in open(record)] if os.path.exists(record) else []
        symbols = subprocess.run(["nm", "-C", program], capture_output=True, text=True, check=True).stdout
        places = [line.split(" ", 2) for line in symbols.splitlines() if line[:1] != " "]
        base = next((int(at, 16) for at, _, name in places if name == "__executable_start"), 0)
        names = {int(at, 16) - base: plain(name) for at, kind, name in places if kind in "tTWwVui"}
        for at, threads, dynamic in lines:
            name = names.get(int(at, 16), f"{program}+{at}")
            before = most.get(name, (0, 0))
            most[name] = (max(before[0], int(threads)), max(before[1], int(dynamic)))
    return most


def resources(cuobjdump, so):
    """{architecture: {kernel: (registers, static bytes, stack bytes)}}"""
    text = demangled(subprocess.run([cuobjdump, "--dump-resource-usage", so], capture_output=True, text=True, check=True).stdout)
    out, arch, name, number = {}, None, None, 0
    for line in text.splitlines():
        if match := re.match(r"arch = sm_(\d+)", line):
            number = int(match[1])
            arch = out.setdefault(number, {})
        elif match := re.match(r"\s*Function (.*):$", line):
            name = plain(match[1])
        elif (match := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", line)) and name is not None:
            static = int(match[3]) - (RESERVED if number >= 90 else 0)
            arch[name] = (int(match[1]), max(0, static), int(match[2]))
    return out


def complaints(arch, threads, dynamic, registers, static):
    warps = (threads + 31) // 32
    taken = (registers + 7) // 8 * 8 * 32 * warps
    if taken > REGISTERS:
        yield f"{threads} threads of {registers} registers take {taken} of {REGISTERS}"
    if arch in SHARED and static + dynamic > SHARED[arch] << 10:
        yield f"{static} bytes of static and {dynamic} of dynamic shared memory are more than {SHARED[arch]} KiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("so")
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "/usr/local/cuda/bin/cuobjdump")
    args = parser.parse_args()
    if not os.access(args.cuobjdump, os.X_OK):
        print(f"check-launches: not tried, for there is no cuobjdump at {args.cuobjdump} (make check-launches CUOBJDUMP=FILE)")
        return 3
    kernels, code, bad = launched(args.programs), resources(args.cuobjdump, args.so), 0
    print(f"{'kernel':<64} {'card':>6} {'threads':>7} {'registers':>9} {'stack':>6} {'static':>7} {'dynamic':>8}")
    for name, (threads, dynamic) in sorted(kernels.items()):
        for arch, known in sorted(code.items()):
            if name not in known:
                print(f"{name[:64]:<64} sm_{arch:<3} has no code")
                bad += 1
                continue
            registers, static, stack = known[name]
            print(f"{name.split('(')[0][:64]:<64} sm_{arch:<3} {threads:>7} {registers:>9} {stack:>6} {static:>7} {dynamic:>8}")
            for why in complaints(arch, threads, dynamic, registers, static):
                print(f"    does not fit: {why}")
                bad += 1
    never = set().union(*(set(known) for known in code.values())) - set(kernels) if code else set()
    print(f"{len(kernels)} kernels launched, {bad} complaints; never launched by these programs: "
          f"{', '.join(sorted(name.split('(')[0] for name in never)) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
