//! The programs and definitions that `make kube-tools` and `make gateway-tools` install.

use anyhow::{Result, ensure};
use endpoint_picker_harness::tools::root;
use std::path::PathBuf;

/// A program, such as `kube-apiserver`.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    installed(&format!("bin/{name}"))
}

/// A folder of CRDs, such as `istio`.
pub(crate) fn crds(folder: &str) -> Result<PathBuf> {
    installed(&format!("crds/{folder}"))
}

/// Programs that `tools/conformance/setup` installs: the program of the suite, those of its pods, and its
/// version of `InferencePool`'s definition.
pub(crate) fn conformance(path: &str) -> Result<PathBuf> {
    let path = root().join(".tools/conformance").join(path);
    ensure!(path.exists(), "no {}: run `tools/conformance/setup`", path.display());
    Ok(path)
}

/// A file or folder of `make ai-gateway-tools`: the programs and charts of Envoy AI Gateway.
pub(crate) fn ai_gateway(path: &str) -> Result<PathBuf> {
    let path = root().join(".tools/ai-gateway").join(path);
    ensure!(path.exists(), "no {}: run `make ai-gateway-tools`", path.display());
    Ok(path)
}

/// A file or folder of `make kserve-tools`: KServe's controller of `LLMInferenceService`s, and its charts.
pub(crate) fn kserve(path: &str) -> Result<PathBuf> {
    let path = root().join(".tools/kserve").join(path);
    ensure!(path.exists(), "no {}: run `make kserve-tools`", path.display());
    Ok(path)
}

/// A file of `make istio-tools`: Istio's control plane.
pub(crate) fn istio(path: &str) -> Result<PathBuf> {
    let path = root().join(".tools/istio").join(path);
    ensure!(path.exists(), "no {}: run `make istio-tools`", path.display());
    Ok(path)
}

fn installed(path: &str) -> Result<PathBuf> {
    let path = root().join(".tools/kube").join(path);
    ensure!(
        path.exists(),
        "no {}: run `make kube-tools`, with a gateway `make gateway-tools`",
        path.display()
    );
    Ok(path)
}
