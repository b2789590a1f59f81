"""The images of the Dockerfile as OCI layouts, assembled by crane without a container engine: each is a tar archive with an index of all architectures.

crane edits images in a registry alone, so one runs on loopback meanwhile.
"""

import contextlib
import itertools
import json
import pathlib
import queue
import subprocess
import tempfile
import threading

import archives
import images
from run import ROOT

CRANE = ROOT / ".tools/bin/crane"
# The names of architectures in images, by those of Rust.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
READY_SECONDS = 30
# Builders give it to an image from scratch.
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def crane(*arguments):
    """Runs crane; an error has its output."""
    done = subprocess.run([CRANE, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SystemExit(f"crane {' '.join(map(str, arguments))}:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def registry(folder):
    """The address of a registry that runs on loopback until the block ends, with its data in the folder."""
    command = [CRANE, "registry", "serve", "--address=127.0.0.1:0", "--disk", folder]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = queue.Queue()
            # Reads on, so that the registry never waits for its log; an empty line is its end.
            threading.Thread(target=lambda: [lines.put(line) for line in itertools.chain(process.stderr, [""])], daemon=True).start()
            log = []
            while "serving on port " not in (line := lines.get(timeout=READY_SECONDS)):
                log.append(line)
                if not line:
                    raise SystemExit(f"the registry ended: {''.join(log)}")
            yield f"127.0.0.1:{line.rsplit(maxsplit=1)[1]}"
        finally:
            process.terminate()


def image(described, files, architecture, reference, release, folder):
    """Pushes the image of one architecture; its only layer has the files, as (path in the image, file)."""
    layer = pathlib.Path(folder) / "layer.tar"
    layer.write_bytes(archives.tar({path.lstrip("/"): file for path, file in files}, release.epoch))
    crane("append", "--oci-empty-base", "--new_layer", layer, "--new_tag", reference)
    flags = [f"--set-platform=linux/{architecture}", f"--env={PATH}"]
    flags += [f"--user={described.user}"] if described.user else []
    flags += [f"--entrypoint={word}" for word in described.entry_point] + [f"--cmd={word}" for word in described.arguments]
    flags += [f"--exposed-ports={port}/tcp" for port in described.ports]
    variables = {"${VERSION}": release.version, "${REVISION}": release.revision, "${CREATED}": release.created}
    flags += [f"--label={name}={variables.get(text, text)}" for name, text in sorted(described.labels.items())]
    crane("mutate", *flags, "--tag", reference, reference)


def layout(described, stage, address, release, folder):
    """The files of an image's layout, by their paths."""
    references = {}
    for architecture in release.architectures:
        platform = ARCHITECTURES[architecture]
        references[platform] = f"{address}/{described.name}:{platform}"
        files = [(path, stage.file(name, architecture)) for name, path in described.files.items()]
        image(described, files, platform, references[platform], release, folder)
    index = f"{address}/{described.name}:{release.version}"
    crane("index", "append", *(f"--manifest={reference}" for reference in references.values()), "--tag", index)
    target = pathlib.Path(folder) / described.name
    crane("pull", "--format=oci", index, target)
    # The names under which podman, skopeo and containerd load it.
    entry = json.loads((target / "index.json").read_text())
    [manifest] = entry["manifests"]
    manifest["annotations"] = {"io.containerd.image.name": f"{described.name}:{release.version}", "org.opencontainers.image.ref.name": release.version}
    (target / "index.json").write_text(json.dumps(entry, indent=2) + "\n")
    return archives.folder(target)


def write(stage, release, target):
    """Writes the archive of each image into the folder `target`."""
    with tempfile.TemporaryDirectory() as data, registry(data) as address:
        for name, commands in images.stages().items():
            if name in images.IMAGES:
                described = images.image(commands)
                with tempfile.TemporaryDirectory() as folder:
                    files = layout(described, stage, address, release, folder)
                    (target / f"{described.name}-{release.version}.oci.tar").write_bytes(archives.tar(files, release.epoch))
