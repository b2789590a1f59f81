//! Writes the wire crate's `src/gen/` from its `proto/`, and the `src/gen/` of the agent's gateway from its
//! own. Run by `make gen`; `make check-gen` fails when the committed output is old.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let wire = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let schemas = [
        "snapshot.proto",
        "report.proto",
        "record.proto",
        "changes.proto",
        "batch.proto",
        "models.proto",
        "prefixes.proto",
    ];
    let descriptors = protox::compile(schemas, [wire.join("proto")])?;
    // Changes are passed on, and readings compared, without a copy.
    prost_build::Config::new()
        .bytes([".endpoint_picker.changes", ".endpoint_picker.v1.EncodedSnapshot"])
        .out_dir(wire.join("src/gen"))
        .compile_fds(descriptors)?;

    let gateway = wire.join("../../metrics-agent/gateway");
    let descriptors = protox::compile(["extension.proto"], [gateway.join("proto")])?;
    // Envoy's messages are passed on without a copy.
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .bytes(".")
        .codec_path("crate::server::codec::BoundedCodec")
        .out_dir(gateway.join("src/gen"))
        .compile_fds(descriptors)?;
    Ok(())
}
