"""A release, and the folder with the programs and modules that were built for it."""

import dataclasses
import datetime
import pathlib
import subprocess

from run import ROOT, version


def git(*arguments):
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@dataclasses.dataclass
class Release:
    """The version and the commit that are released."""

    version: str
    revision: str
    # The time of the commit, in seconds since 1970.
    epoch: int
    architectures: list[str]

    @property
    def created(self):
        """The time of the commit, as labels have it."""
        return datetime.datetime.fromtimestamp(self.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @classmethod
    def of_checkout(cls, architectures):
        """The release of the checked out commit; changes that are not committed are noted in its revision."""
        is_changed = git("status", "--porcelain") != ""
        return cls(version(), git("rev-parse", "HEAD") + ("-dirty" if is_changed else ""), int(git("log", "-1", "--format=%ct")), architectures)


@dataclasses.dataclass
class Stage:
    """The folder with the built programs and modules."""

    folder: pathlib.Path

    def file(self, name, architecture):
        """A file for this architecture, or for all."""
        for path in (self.folder / architecture / name, self.folder / name):
            if path.exists():
                return path
        raise SystemExit(f"package: {self.folder} has no {name} for {architecture}")
