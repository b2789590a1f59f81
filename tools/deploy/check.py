"""Checks deploy/ for tools/check/deploy: the chart, its gateways and the images."""

import pathlib
import sys
import tempfile

import chart
import extension
import gateways
import images
import run


def main():
    """Prints all faults, or what was checked."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            faults = [*chart.check(pathlib.Path(folder)), *gateways.check(), *extension.check(), *images.check()]
        except run.Failed as failed:
            sys.exit(str(failed))
    if faults:
        sys.exit("\n".join(faults))


main()
