"""The Dockerfile: what each image contains, runs and is labelled with, read from its text."""

import re
import tomllib

import dockerfile

from run import ROOT

FILE = ROOT / "deploy/docker/Dockerfile"
IGNORED = ROOT / "deploy/docker/Dockerfile.dockerignore"
LABELS = {"title", "description", "source", "licenses", "version", "revision", "created"}
# Each image: its base, what is copied into it, its user and its entry point.
IMAGES = {
    "agent": (
        "gcr.io/distroless/base-nossl-debian12:nonroot",
        ("/out/metrics-agent", "/usr/local/bin/metrics-agent"),
        "65532:65532",
        ["/usr/local/bin/metrics-agent"],
    ),
    "model-server": (
        "gcr.io/distroless/base-nossl-debian12:nonroot",
        ("/out/endpoint-picker-model-server", "/usr/local/bin/endpoint-picker-model-server"),
        "65532:65532",
        ["/usr/local/bin/endpoint-picker-model-server"],
    ),
    # Envoy Gateway and Istio read the file plugin.wasm of the last layer, and start nothing.
    "wasm": ("scratch", ("/out/plugin.wasm", "/plugin.wasm"), None, None),
    "native": (
        "busybox:1.37.0-musl",
        ("/out/libendpoint_picker.so", "/libendpoint_picker.so"),
        "65532:65532",
        ["/bin/cp", "/libendpoint_picker.so"],
    ),
}


def stages():
    """The commands of each stage, by its name."""
    found, current = {}, None
    for command in dockerfile.parse_file(str(FILE)):
        if command.cmd.upper() == "FROM":
            current = found.setdefault(command.value[-1], [])
        if current is not None:
            current.append(command)
    return found


def values(stage, name):
    """The values of a stage's commands of one kind."""
    return [list(command.value) for command in stage if command.cmd.upper() == name]


def image_faults(name, stage):
    """What differs from IMAGES, and the labels that are missing."""
    base, (source, target), user, entry = IMAGES[name]
    (line,) = values(stage, "FROM")
    copies = [command for command in stage if command.cmd.upper() == "COPY"]
    found = (line[0], [list(copy.value) for copy in copies], values(stage, "USER"), values(stage, "ENTRYPOINT"))
    expected = (base, [[source, target]], [[user]] if user else [], [entry] if entry else [])
    if found != expected:
        yield f"image {name} has {found} in place of {expected}"
    if [copy.flags for copy in copies] != [(f"--from=build-{name}",)]:
        yield f"image {name} copies from {[copy.flags for copy in copies]}"
    if name == "wasm" and stage[-1].cmd.upper() != "COPY":
        yield "image wasm: the last layer must be that of plugin.wasm"
    labels = [text for label in values(stage, "LABEL") for text in label[::2]]
    lacking = {f"org.opencontainers.image.{label}" for label in LABELS} - set(labels)
    if lacking:
        yield f"image {name} lacks the labels {sorted(lacking)}"


def defaults():
    """The defaults of the build arguments."""
    return dict(argument.split("=", 1) for [argument] in map(list, values(dockerfile.parse_file(str(FILE)), "ARG")) if "=" in argument)


def check():
    """All faults of the Dockerfile."""
    found = stages()
    for name in IMAGES:
        if name not in found:
            yield f"{FILE} has no stage {name}"
        else:
            yield from image_faults(name, found[name])
    if list(found)[-1] != "agent":
        yield "the last stage is not agent, which a build without a target makes"

    dist = (ROOT / "tools/release/dist").read_text()
    version = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    pinned = {
        "CARGO_ZIGBUILD_VERSION": re.search(r"^zigbuild_version=(\S+)", dist, re.MULTILINE)[1],
        "ZIG_VERSION": re.search(r"^zig_version=(\S+)", dist, re.MULTILINE)[1],
        "VERSION": version,
    }
    yield from (f"{argument} is not {value}" for argument, value in pinned.items() if defaults().get(argument) != value)
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    needed = {"Cargo.toml", "Cargo.lock", *(member.split("/")[0] for member in manifest["workspace"]["members"])}
    context = {line[1:] for line in IGNORED.read_text().splitlines() if line.startswith("!")}
    if context != needed:
        yield f"{IGNORED} lets {sorted(context)} into a build, which reads {sorted(needed)}"
    images = re.search(r"^targets='(.+)'$", (ROOT / "tools/release/images").read_text(), re.MULTILINE)[1]
    if {image.split(":")[0] for image in images.split()} != set(IMAGES):
        yield f"tools/release/images builds {images}"
    print(f"check-deploy: the Dockerfile has {len(IMAGES)} images as described")
