//! The name of this proxy in reports to the agent.

use std::fs;

/// The name of this proxy in reports to the agent: the host's, which in Kubernetes is the pod's. Envoy's node is not known to modules
/// while they are configured.
pub(crate) fn proxy_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
