"""All parts, the worthiest first: where time runs out, the last ones are left out.

The seconds are those of one H100, `part_wall_s` in docs/results/gpu_h100.csv. Estimated are `agree-lora`, `qlora`,
`energy`, `caps`, `tuned`, `rounds-W4`, `rounds-W1`, `speed-W1s-20`, `speed-W1-20`. Checks come first, above all those
that have failed on a GPU; of the rest, those that have not been measured on one come before longer ones that have.
"""

from __future__ import annotations

from gpu.conductor import Part

ENGINES = ("torch", "numpy", "pydantic")
"""What every part imports."""
PROGRAM = (
    *("mpi4py", "h5py", "pandas", "safetensors", "tomli_w", "click", "rich", "pooch", "requests", "filelock"),
    *("soundfile", "threadpoolctl"),
)
"""What whole runs of hpctrip import besides; mpi4py needs no MPI library."""
GLYPHS = ("matplotlib", "PIL")
LLM = ("transformers", "peft")


def _speed(shape: str, num_sites: int, seconds: float) -> Part:
    purpose = f"{shape}, {num_sites} sites: plain loop, sequential, stacked in blocks of 8 to 128; evaluation"
    arguments = (("shape", shape), ("num_sites", num_sites))
    return Part(f"speed-{shape}-{num_sites}", "gpu.speed:engines", seconds, purpose, arguments)


def _limit(shape: str, seconds: float) -> Part:
    purpose = (
        f"{shape}, 100 sites: profile of a round, share of the peak, launches, gathers, waits of the host"
    )
    arguments = (("shape", shape), ("num_sites", 100), ("block", 32))
    return Part(f"limit-{shape}", "gpu.limit:round_of", seconds, purpose, arguments)


def _rounds(shape: str, num_sites: int | None, seconds: float) -> Part:
    purpose = f"{shape}: whole rounds and their shares, beside the plain loop and pfl where it is carried"
    arguments = (("shape", shape), ("num_sites", num_sites))
    return Part(f"rounds-{shape}", "gpu.runs:rounds", seconds, purpose, arguments, PROGRAM)


def _agree(name: str, shapes: tuple[str, ...], seconds: float, needs: tuple[str, ...] = ()) -> Part:
    purpose = f"{', '.join(shapes)}: stacked and sequential here against a CPU, CUDA graphs on and off"
    return Part(name, "gpu.correctness:engines", seconds, purpose, (("shapes", shapes),), needs)


PARTS = (
    Part("machine", "gpu.speed:machine", 9, "the best of the device: products, copies, launches, waiting"),
    _agree("agree-cnn", ("W1s", "W1", "W4", "FLUTE"), 6),
    _agree("agree-lora", ("LoRA",), 25, LLM),
    Part(
        "qlora",
        "gpu.runs:qlora",
        30,
        "a small Llama by QLoRA beside LoRA",
        (),
        (*PROGRAM, *LLM, "tokenizers", "bitsandbytes"),
    ),
    Part(
        "memory",
        "gpu.correctness:memory",
        5,
        "W1, 64 sites: the GPU's memory runs out for real, and fewer sites train at once",
        (("shape", "W1"), ("num_sites", 64)),
    ),
    Part(
        "devices",
        "gpu.runs:devices",
        10,
        "a checkpoint of the GPU resumed on the CPU, and the reverse",
        (),
        PROGRAM,
    ),
    Part("nccl", "gpu.nccl:exchange", 3, "NCCL adds up updates, with one member and with one a GPU"),
    Part(
        "nccl-mpi", "gpu.runs:nccl_by_mpi", 23, "the program under mpirun over NCCL", (), PROGRAM, ("mpirun",)
    ),
    _limit("W1s", 9),
    _limit("W1", 11),
    Part(
        "precisions",
        "gpu.correctness:precisions",
        9,
        "W1s, W1, KWT-1: tf32 and bfloat16 against float32",
        (("shapes", ("W1s", "W1", "KWT-1")),),
    ),
    Part("accuracies", "gpu.runs:accuracies", 12, "ten rounds in each precision", (), (*PROGRAM, *GLYPHS)),
    _speed("W1s", 100, 44),
    _rounds("FLUTE", None, 41),
    Part(
        "energy",
        "gpu.energy:rounds",
        100,
        "W1s, W1, 100 sites: joules of a round, samples per joule; float32, tf32, bfloat16",
        (("shapes", ("W1s", "W1")), ("num_sites", 100), ("block", 32)),
        needs_gpu=("pynvml",),
    ),
    Part(
        "caps",
        "gpu.energy:caps",
        35,
        "W1s, 100 sites: the same under three power caps, where they may be set",
        (("shape", "W1s"), ("num_sites", 100), ("block", 32)),
        needs_gpu=("pynvml",),
    ),
    Part(
        "tuned",
        "gpu.energy:tuned",
        60,
        "W1s, 100 sites: `hpctrip tune`, and what its overlays gain",
        (),
        (*PROGRAM, *GLYPHS),
        needs_gpu=("pynvml",),
    ),
    _speed("W1", 100, 53),
    _agree("agree-others", ("W2", "KWT-1"), 18),
    _rounds("W4", None, 60),
    _rounds("W1", 100, 80),
    _rounds("W1s", 100, 80),
    _speed("W2", 20, 66),
    _speed("KWT-1", 20, 69),
    _speed("FLUTE", 10, 19),
    _speed("W4", 1000, 36),
    _speed("W1s", 20, 15),
    _speed("W1", 20, 15),
)
