"""Packaging of hpctrip: honest version ranges here, the tested versions in constraints.txt."""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

LLM = [
    "transformers>=5.0",  # causal language models and their tokenizers
    "peft>=0.18",  # LoRA adapters
]
QLORA = ["bitsandbytes>=0.50"]  # 4-bit layers, also on a CPU

TENSORBOARD = ["tensorboard>=2.20"]  # 2.16 fails with NumPy 2
ENERGY = ["nvidia-ml-py>=12.535.77"]  # NVML's own bindings; CPUs need none
METRICS = ["prometheus-client>=0.20"]
MLFLOW = [
    "mlflow-skinny>=3.5",  # MLflow's client; the whole of it, which brings the page, is not needed to log
    "sqlalchemy>=2.0.30",  # these two are what it needs for a database of its own
    "alembic>=1.13",
]
PARQUET = ["pyarrow>=15"]
DOCS = [
    "mkdocs>=1.6",  # pages made while the site is built (File.generated)
    "mkdocs-material>=9.6",  # the oldest tried
]

here = Path(__file__).parent
version = next(
    line.split('"')[1]
    for line in (here / "hpctrip" / "__init__.py").read_text().splitlines()
    if line.startswith("__version__")
)

REPOSITORY = os.environ.get("HPCTRIP_REPOSITORY")
"""Address of the public repository, named by whoever builds a release: CONTRIBUTING.md says how."""


def absolute(link: re.Match[str]) -> str:
    """A link or picture of README for PyPI, which has no pages beside it: into the repository at this version, or only
    its text without a repository."""
    mark, text, page = link.groups()
    kind = "raw" if mark else "blob"
    return f"{mark}[{text}]({REPOSITORY}/{kind}/v{version}/{page})" if REPOSITORY else text


setup(
    name="hpctrip",
    version=version,
    description="Time-to-accuracy of training spread over power-limited datacenter sites (PowerTrip)",
    long_description=re.sub(
        r"(!?)\[([^]]*)\]\((?!https:)([^)]*)\)", absolute, (here / "README.md").read_text()
    ),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    author="The hpctrip authors",
    project_urls={"Paper": "https://arxiv.org/abs/2507.17904"}
    | ({"Source": REPOSITORY} if REPOSITORY else {}),
    keywords=["federated learning", "HPC", "MPI", "power", "time-to-accuracy", "simulation"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["hpctrip", "hpctrip.*"]),
    # hpctrip/inputs and hpctrip/slurm are links to the folders at the top: found there whether installed or not
    package_data={
        "hpctrip": [
            *(
                "runner/*.toml",
                "inputs/*.toml",
                "inputs/*/*.toml",
                "inputs/new/*.py",
                "inputs/studies/*.py",
                "inputs/studies/*.csv",
                "inputs/worlds/*.csv",
                "slurm/*.sh",
                "py.typed",
            ),
            "sim/hardware/curves/*.csv",
        ]
    },
    # A bound is the oldest version that passes the tests (`.ci/matrix lowest`), not the oldest that installs.
    install_requires=[
        "torch>=2.4",
        "numpy>=1.26",
        "mpi4py>=4.1",  # imports without an MPI library; only running more than one rank needs one
        "h5py>=3.16",  # wheels with HDF5 2.0; the HDF5 1.14 of older ones crashes on damaged files
        "pandas>=2.1",
        "pydantic>=2.8",  # input files: validation with dotted paths; 2.7 forgets the bounds of a key that may be null
        "safetensors>=0.4.3",  # the trained model, for others to read
        "tomli-w>=1.0",  # the merged input, stored as TOML in the results
        "click>=8.1.4",  # command line
        "rich>=14.3",  # progress bar and tables; older bars leave an empty line where there is no terminal
        "platformdirs>=4",  # the cache folder
        "pooch>=1.8",  # downloads with checksums
        "tqdm>=4.66",  # pooch's progress bar
        "filelock>=3.12",  # several jobs preparing one cache
        "matplotlib>=3.11",  # figures; its DejaVu, STIX and Computer Modern fonts are the glyphs data (cmti10: 3.11)
        "pillow>=10.2",  # glyph rendering
        "soundfile>=0.12",  # wav and flac; its wheels bring libsndfile
        "threadpoolctl>=3.1",  # keeps BLAS to one thread where we have our own
    ],
    extras_require={
        "mpich": ["mpich>=5.0.2"],  # a complete MPI with mpirun; 4.3 hangs where a machine is lost
        "llm": LLM,  # language models; nothing else imports them
        "qlora": [*LLM, *QLORA],  # adapters over a base in 4 bits
        "tensorboard": TENSORBOARD,  # the callback of that name, and so is the next
        "mlflow": MLFLOW,
        "energy": ENERGY,  # joules, power caps and clocks of NVIDIA GPUs
        "metrics": METRICS,  # the callback that writes for Prometheus
        "parquet": PARQUET,  # export --parquet
        "docs": DOCS,  # the documentation as a site: mkdocs build
        "test": [
            "pytest>=8.2",
            "pytest-timeout>=2.3.1",
            "pytest-xdist>=3.6.1",
            "hypothesis>=6.100",
            "setuptools>=70.1",
            *LLM,
            *QLORA,
            *TENSORBOARD,
            *MLFLOW,  # 120 MB with all that it brings
            *ENERGY,  # whose library the tests play
            *METRICS,
            *PARQUET,
            "xarray>=2024.10",  # these two read results files as users do; the first with trees
            "h5netcdf>=1.4",
            *DOCS,  # so that the tests build the site
        ],
    },
    entry_points={"console_scripts": ["hpctrip=hpctrip.__main__:main"]},
)
