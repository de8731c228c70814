"""The container image of an engine for an accelerator and a version, and the docker line that starts it."""

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from tonnage.estimate.backends import runs
from tonnage.fit.packages import Order
from tonnage.fit.technical import Technical
from tonnage.spec.card import SizingCard
from tonnage.spec.engine import Image, Profile, version_key
from tonnage.spec.facts import Gpu
from tonnage.units import GiB

HUB = "Docker Hub"
"""The registry that names without a host mean."""
SHARED_MEMORY = 8 * GiB
"""Shared memory for the exchange between worker processes; the container default of 64 MiB is too small for NCCL. [bytes]"""
_DEVICES = {
    "amd": ("--device", "/dev/kfd", "--device", "/dev/dri"),
    "intel": ("--device", "/dev/dri"),
    "google": ("--privileged", "--network", "host"),
    "aws": ("--device", "/dev/neuron0"),
    "gaudi": ("--runtime", "habana", "-e", "HABANA_VISIBLE_DEVICES=all", "--cap-add", "sys_nice"),
}
_WHOLE = re.compile(r"v?\d+\.\d+\.\d+[A-Za-z0-9.]*|b\d+")
_PORT = 8000


class Container(NamedTuple):
    """What runs the engine on this accelerator."""

    image: Image | None
    name: str | None
    """Repository and tag; None where no image is known."""
    note: str
    """What is left to say of it, "" when nothing is."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the server needs to be reached from outside. [unitless]"""
        return () if self.image is None else self.image.arguments


def container(technical: Technical, card: SizingCard) -> Container:
    """
    The image a candidate is started from.

    Args:
        technical: Layout, GPU and the resolved card.
        card: The sizing card.

    Returns:
        The engine's image for this vendor, tagged with the version that is asked for, or the newest whose memory is known.
    """
    tool, gpu, serving = technical.variant.workload.tool, technical.gpu, card.serving
    if tool is None or serving is None:
        return Container(None, None, "")
    version = (serving.engine_version or tool.known_until).removeprefix("v")
    made_for = [i for i in tool.images if _suits(i, gpu)]
    image = next((i for i in made_for if _named_so(i, version)), None)
    if image is None:
        return Container(None, None, _without(tool, gpu, version, made_for))
    tag = image.tag.format(version=version) if _WHOLE.fullmatch(version) else "latest"
    name = f"{image.repository}:{tag}"
    notes = [] if image.registry == HUB else [f"IMAGE is {name} of {image.registry}'s registry"]
    if tag == "latest":
        notes.append(f"{version!r} names no single release: set a tag of {image.repository} in place of latest")
    elif serving.engine_version is None:
        notes.append(f"image of {tool.name} {version}, the newest release whose memory is known here")
    return Container(image, name, "; ".join(notes))


def docker_line(
    technical: Technical, order: Order, command: Sequence[str], env: dict[str, str], found: Container
) -> str:
    """The line that starts the engine in its container; $IMAGE where its registry is to be named, or no image is known."""
    image = found.image
    if technical.gpu.vendor == "apple":
        return ""  # Metal is not to be had in a container
    port = _PORT if image is None else image.port
    words = ["docker", "run", "--rm", *_devices(technical, order), "--shm-size", f"{SHARED_MEMORY // GiB}g"]
    words += ["-p", f"{_PORT}:{port}"]
    for name, value in env.items():
        words += ["-e", f"{name}={value}"]
    parts = [shlex.join(words)]
    if image is not None and image.cache is not None:
        parts.append(f'-e HF_TOKEN -v "$HOME/.cache/huggingface:{image.cache}"' if _of_hub(image) else _volume(image))
    elif "./model.gguf" in command:
        parts.append('-v "$PWD:/models"')
        command = ["/models/model.gguf" if word == "./model.gguf" else word for word in command]
    named = image is not None and image.registry == HUB
    parts.append(str(found.name) if named else '"$IMAGE"')
    arguments = _arguments(command, image)
    return " ".join([*parts, shlex.join(arguments)]).rstrip()


def _arguments(command: Sequence[str], image: Image | None) -> list[str]:
    """What follows the image's name: the command without what the image begins with by itself."""
    if image is None:
        return list(command)
    if image.serves_alone:
        return []
    rest = list(command[image.starts :])
    # an image that starts `vllm serve`, or before it the server module, takes the model by its flag
    model = ["--model"] if image.starts and rest and not rest[0].startswith("-") else []
    return [*model, *rest, *image.arguments]


def _of_hub(image: Image) -> bool:
    return not image.serves_alone


def _volume(image: Image) -> str:
    return shlex.join(["-v", f"{image.repository.partition('/')[0]}:{image.cache}"])


def _suits(image: Image, gpu: Gpu) -> bool:
    return image.vendor == gpu.vendor and (not image.gpus or gpu.id.startswith(image.gpus))


def _named_so(image: Image, version: str) -> bool:
    """Whether tags of this version follow the image's scheme."""
    key = version_key(version)
    after = image.since is None or key >= version_key(image.since)
    return after and (image.until is None or key <= version_key(image.until))


def _without(tool: Profile, gpu: Gpu, version: str, made_for: Sequence[Image]) -> str:
    """Why there is no image."""
    if made_for:
        return f"how images of {tool.name} {version} for {gpu.vendor} are tagged is not known: see {made_for[0].repository}"
    if not tool.images:
        return ""
    how = "build it, or take the vendor's" if gpu.vendor in runs(tool).possible else "build it"
    return f"no published image of {tool.name} for {gpu.name} is known: {how}, and set IMAGE"


def _devices(technical: Technical, order: Order) -> tuple[str, ...]:
    gpu = technical.gpu
    key = "gaudi" if gpu.id.startswith("gaudi") else gpu.vendor
    if key in _DEVICES:
        return _DEVICES[key]
    used = min(order.package.gpus_per_host, technical.placement.gpus)
    return ("--gpus", "all" if used == order.package.gpus_per_host else str(used))
