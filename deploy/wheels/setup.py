"""The wheel blasd-server. What goes into it is laid out by build.sh before; this says its name and platform."""
import os

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    """For any Python 3, and for machines whose C library is as new as this one's."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        libc, version = os.confstr("CS_GNU_LIBC_VERSION").split()
        assert libc == "glibc"
        major, minor = version.split(".")[:2]
        return "py3", "none", f"manylinux_{major}_{minor}_{os.uname().machine}"


class KeepModes(build_py):
    """Programs stay programs."""

    def copy_file(self, infile, outfile, preserve_mode=True, **options):
        return super().copy_file(infile, outfile, preserve_mode=True, **options)


setup(
    name="blasd-server",
    version=open("VERSION").read().strip(),
    description="The blasd service: a BLAS daemon, with its redis-server and libraries",
    license="Apache-2.0",
    python_requires=">=3.9",
    packages=["blasd_server"],
    package_data={"blasd_server": ["bin/*", "lib/*", "licenses/*"]},
    entry_points={"console_scripts": ["blasd = blasd_server:main"]},
    cmdclass={"bdist_wheel": PlatformWheel, "build_py": KeepModes},
)
