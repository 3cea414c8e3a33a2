"""Spack's recipe, for Spack 1.0 and later, not yet tried with one:

    spack repo create ~/recipes hpctrip && spack repo add ~/recipes/spack_repo/hpctrip
    install -D docs/site/package.py ~/recipes/spack_repo/hpctrip/packages/py_hpctrip/package.py
    spack install py-hpctrip ^mpich         # or another MPI library

Where the checksum of the source distribution is not known yet, add `--no-checksum` after `install`.
"""

from spack.package import default_args, depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage


class PyHpctrip(PythonPackage):
    """Time-to-accuracy of training spread over power-limited datacenter sites (PowerTrip)."""

    homepage = "https://arxiv.org/abs/2507.17904"
    pypi = "hpctrip/hpctrip-0.4.0.tar.gz"

    license("Apache-2.0")

    version("0.4.0")

    depends_on("py-setuptools@68:", type="build")
    with default_args(type=("build", "run")):
        depends_on("python@3.11:")
        depends_on("py-torch@2.4:")
        depends_on("py-numpy@1.26:")
        depends_on("py-mpi4py@4.1:")
        depends_on("py-h5py@3.16:")
        depends_on("py-pandas@2.1:")
        depends_on("py-pydantic@2.8:")
        depends_on("py-safetensors@0.4.3:")
        depends_on("py-tomli-w@1.0:")
        depends_on("py-click@8.1.4:")
        depends_on("py-rich@14.3:")
        depends_on("py-platformdirs@4:")
        depends_on("py-pooch@1.8:")
        depends_on("py-tqdm@4.66:")
        depends_on("py-filelock@3.12:")
        depends_on("py-matplotlib@3.11:")
        depends_on("py-pillow@10.2:")
        depends_on("py-soundfile@0.12:")
        depends_on("py-threadpoolctl@3.1:")
