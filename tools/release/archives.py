"""Archives whose bytes depend on nothing but the names, modes and contents of their files."""

import gzip
import io
import pathlib
import tarfile


def tar(files, epoch):
    """The bytes of a tar archive of these files, in their order: for each path in it a file of this machine, or bytes. Folders come before their files."""
    output, folders = io.BytesIO(), set()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, source in files.items():
            for folder in reversed(pathlib.PurePosixPath(path).parents[:-1]):
                if folder not in folders:
                    folders.add(folder)
                    _add(archive, f"{folder}/", epoch, 0o755, None)
            if isinstance(source, bytes):
                _add(archive, path, epoch, 0o644, source)
            else:
                _add(archive, path, epoch, 0o755 if source.stat().st_mode & 0o100 else 0o644, source.read_bytes())
    return output.getvalue()


def _add(archive, path, epoch, mode, content):
    entry = tarfile.TarInfo(path)
    entry.mtime, entry.mode = epoch, mode
    if content is None:
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    else:
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))


def compressed(content):
    """The content compressed with gzip, without a time and a name."""
    return gzip.compress(content, mtime=0)


def folder(root, prefix=""):
    """The files of a folder by their paths in an archive, sorted."""
    return {f"{prefix}{path.relative_to(root)}": path for path in sorted(root.rglob("*")) if path.is_file()}
