//! Writes the wire crate's `src/gen/` from its `proto/`. Run by `make gen`; `make check-gen` fails when the
//! committed output is old.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let wire = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let descriptors =
        protox::compile(["snapshot.proto", "report.proto", "changes.proto"], [wire.join("proto")])?;
    // Changes are passed on without a copy.
    prost_build::Config::new()
        .bytes([".endpoint_picker.changes"])
        .out_dir(wire.join("src/gen"))
        .compile_fds(descriptors)?;
    Ok(())
}
