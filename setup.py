"""Packaging of hpctrip: honest version ranges here, the tested versions in constraints.txt."""

from pathlib import Path

from setuptools import find_packages, setup

LLM = [
    "transformers>=5.0",  # causal language models and their tokenizers
    "peft>=0.18",  # LoRA adapters
]

here = Path(__file__).parent
version = next(
    line.split('"')[1]
    for line in (here / "hpctrip" / "__init__.py").read_text().splitlines()
    if line.startswith("__version__")
)

setup(
    name="hpctrip",
    version=version,
    description="Time-to-accuracy of training spread over power-limited datacenter sites (PowerTrip)",
    long_description=(here / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["hpctrip", "hpctrip.*"]),
    package_data={"hpctrip": ["app/*.toml"]},
    install_requires=[
        "torch>=2.4",
        "numpy>=1.26",
        "mpi4py>=4.0",  # imports without an MPI library; only running more than one rank needs one
        "h5py>=3.10",
        "pandas>=2.1",
        "pydantic>=2.7",  # input files: validation with dotted paths
        "safetensors>=0.4",  # the trained model, for others to read
        "tomli-w>=1.0",  # the merged input, stored as TOML in the results
        "click>=8.1",  # command line
        "rich>=13.0",  # progress bar and tables
        "pooch>=1.8",  # downloads with checksums
        "requests>=2.28",  # pooch's transport, whose errors we name
        "filelock>=3.12",  # several jobs preparing one cache
        "matplotlib>=3.8",  # figures; its DejaVu, STIX and Computer Modern fonts are the glyphs data
        "pillow>=10.0",  # glyph rendering
        "soundfile>=0.12",  # wav and flac; its wheels bring libsndfile
        "threadpoolctl>=3.1",  # keeps BLAS to one thread where we have our own
    ],
    extras_require={
        "mpich": ["mpich>=4.2"],  # a complete MPI with mpirun, for machines that have none
        "llm": LLM,  # language models; nothing else imports them
        "test": ["pytest>=8", "pytest-timeout>=2.3", "hypothesis>=6.100", *LLM],
    },
    entry_points={"console_scripts": ["hpctrip=hpctrip.app.cli:main"]},
)
