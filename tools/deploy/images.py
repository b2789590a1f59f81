"""The Dockerfile: what each image contains, runs and is labelled with, read from its text."""

import dataclasses
import re
import tomllib

import dockerfile

from run import ROOT, version

FILE = ROOT / "deploy/docker/Dockerfile"
IGNORED = ROOT / "deploy/docker/Dockerfile.dockerignore"
LABELS = {"title", "description", "source", "licenses", "version", "revision", "created"}
# For each image its files in the order of their copies, its user and its entry point.
IMAGES = {
    "agent": (
        {"ca-certificates.crt": "/etc/ssl/certs/ca-certificates.crt", "metrics-agent": "/usr/local/bin/metrics-agent"},
        "65532:65532",
        ["/usr/local/bin/metrics-agent"],
    ),
    "model-server": (
        {"endpoint-picker-model-server": "/usr/local/bin/endpoint-picker-model-server"},
        "65532:65532",
        ["/usr/local/bin/endpoint-picker-model-server"],
    ),
    # Envoy Gateway and Istio read the file plugin.wasm of the last layer, and start nothing.
    "wasm": ({"plugin.wasm": "/plugin.wasm"}, None, []),
    "native": (
        {"libendpoint_picker.so": "/libendpoint_picker.so", "install-module": "/install-module"},
        "65532:65532",
        ["/install-module"],
    ),
}


@dataclasses.dataclass
class Image:
    """An image from scratch, as its stage describes it."""

    base: str
    # The path of each file in the image, by its name in the folder /out of the stage that builds it.
    files: dict[str, str]
    user: str | None
    entry_point: list[str]
    arguments: list[str]
    ports: list[str]
    # With the variables VERSION, REVISION and CREATED.
    labels: dict[str, str]

    @property
    def name(self):
        """The image's name, without registry and tag."""
        return self.labels["org.opencontainers.image.title"]


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


def image(stage):
    """The image that a stage describes."""
    last = {name: (values(stage, name) or [[]])[-1] for name in ("USER", "ENTRYPOINT", "CMD")}
    return Image(
        base=values(stage, "FROM")[0][0],
        files={source.removeprefix("/out/"): target for source, target in values(stage, "COPY")},
        user=(last["USER"] or [None])[0],
        entry_point=last["ENTRYPOINT"],
        arguments=last["CMD"],
        ports=[port for ports in values(stage, "EXPOSE") for port in ports],
        labels={name: text.strip('"') for label in values(stage, "LABEL") for name, text in zip(label[::2], label[1::2], strict=True)},
    )


def built_files(name):
    """The files that the stages of an image build: programs and modules as tools/release/dist does, by the same script."""
    found = stages()
    for command in values(found.get(f"build-{name}", []), "RUN"):
        for part in re.split(r"\s+&&\s+", command[0]):
            script = re.fullmatch(r'(?:PROFILE="\$PROFILE" )?tools/release/build (\S+) /out(?: "\$\(cat /architecture\)")?', part.strip())
            yield script[1] if script else part
    if name == "agent":
        yield "ca-certificates.crt"


def image_faults(name, stage):
    """What differs from IMAGES, and the labels that are missing."""
    found = image(stage)
    if found.base != "scratch":
        yield f"image {name} is based on {found.base}"
    if (found.files, found.user, found.entry_point) != IMAGES[name]:
        yield f"image {name} is {found} in place of {IMAGES[name]}"
    sources = {flag for command in stage if command.cmd.upper() == "COPY" for flag in command.flags}
    if not sources <= {f"--from=build-{name}", "--from=source"}:
        yield f"image {name} copies from {sources}"
    if (files := set(found.files)) != (built := set(built_files(name))):
        yield f"image {name} has {sorted(files)}, and its stages build {sorted(built)}"
    if name == "wasm" and stage[-1].cmd.upper() != "COPY":
        yield "image wasm: the last layer must be that of plugin.wasm"
    lacking = {f"org.opencontainers.image.{label}" for label in LABELS} - set(found.labels)
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
    requirements = (ROOT / "tools/deploy/requirements.txt").read_text()
    pinned = {
        "CARGO_ZIGBUILD_VERSION": re.search(r"^zigbuild_version=(\S+)", dist, re.MULTILINE)[1],
        "ZIG_VERSION": re.search(r"^zig_version=(\S+)", dist, re.MULTILINE)[1],
        "CERTIFI_VERSION": re.search(r"^certifi==(\S+)", requirements, re.MULTILINE)[1],
        "RUST_VERSION": tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"],
        "VERSION": version(),
    }
    yield from (f"{argument} is not {value}" for argument, value in pinned.items() if defaults().get(argument) != value)
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    needed = {"Cargo.toml", "Cargo.lock", "tools/release/build", "dist/*.profdata", *(member.split("/")[0] for member in manifest["workspace"]["members"])}
    context = {line[1:] for line in IGNORED.read_text().splitlines() if line.startswith("!")}
    if context != needed:
        yield f"{IGNORED} lets {sorted(context)} into a build, which reads {sorted(needed)}"
    images = re.search(r"^targets='(.+)'$", (ROOT / "tools/release/images").read_text(), re.MULTILINE)[1]
    if {image.split(":")[0] for image in images.split()} != set(IMAGES):
        yield f"tools/release/images builds {images}"
    print(f"check-deploy: the Dockerfile has {len(IMAGES)} images as described")
