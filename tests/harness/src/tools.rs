//! Finds the programs that the harness starts.

use anyhow::{Context, Result, ensure};
use std::env;
use std::path::{Path, PathBuf};

/// The repository's root.
#[expect(clippy::missing_panics_doc, reason = "this crate lies two folders below the root")]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in a workspace")
}

/// Envoy: the binary of `ENVOY_PATH`, otherwise the one of `make tools`.
pub fn envoy() -> Result<PathBuf> {
    let path = env::var_os("ENVOY_PATH").map_or_else(|| root().join(".tools/bin/envoy"), PathBuf::from);
    ensure!(
        path.is_file(),
        "no Envoy at {}: run `make tools`, or set ENVOY_PATH to a binary",
        path.display()
    );
    Ok(path)
}

/// func-e, as `make tools` found or brought it; `None` where there was neither func-e nor Go to build it.
pub fn func_e() -> Option<PathBuf> {
    Some(root().join(".tools/bin/func-e")).filter(|path| path.is_file())
}

/// Python with the packages of `tests/asgi/requirements.txt`.
pub fn asgi_python() -> Result<PathBuf> {
    let path = root().join(".tools/asgi/bin/python");
    ensure!(path.is_file(), "no Python with Starlette at {}: run `make test-tools`", path.display());
    Ok(path)
}

/// Python with the packages of `tests/grpc/requirements.txt`.
pub fn grpc_python() -> Result<PathBuf> {
    let path = root().join(".tools/grpc/bin/python");
    ensure!(path.is_file(), "no Python with grpcio at {}: run `make test-tools`", path.display());
    Ok(path)
}

/// Python with OpenAI's SDK, the packages of `tests/openai/requirements.txt`.
pub fn openai_python() -> Result<PathBuf> {
    let path = root().join(".tools/openai/bin/python");
    ensure!(path.is_file(), "no Python with OpenAI's SDK at {}: run `make test-tools`", path.display());
    Ok(path)
}

/// The folder with OpenAI's SDK for JavaScript, the packages of `tests/openai/package-lock.json`.
pub fn openai_packages() -> Result<PathBuf> {
    let path = root().join(".tools/openai-js");
    ensure!(
        path.join("node_modules/openai").is_dir(),
        "no SDK of OpenAI for JavaScript in {}: run `make test-tools`",
        path.display()
    );
    Ok(path)
}

/// A store that agents share changes through: Valkey, or Redis, on `PATH`.
pub fn store() -> Result<PathBuf> {
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
    let programs = ["valkey-server", "redis-server"].into_iter();
    let mut places = programs.flat_map(|program| folders.iter().map(move |folder| folder.join(program)));
    let found = places.find(|path| path.is_file());
    found.context("no valkey-server or redis-server on PATH: run `tools/setup/debian redis-server`")
}

/// The metrics agent, from the same build as this program.
pub fn metrics_agent() -> Result<PathBuf> {
    built("metrics-agent", "metrics-agent")
}

/// A program of this workspace, from the same build as the caller.
pub fn built(program: &str, package: &str) -> Result<PathBuf> {
    let own = env::current_exe()?;
    // A test's own binary lies one folder deeper than the programs.
    let found =
        own.ancestors().skip(1).take(2).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| {
        anyhow::anyhow!("no {program} beside {}: run `cargo build -p {package}`", own.display())
    })
}
