//! The name of this proxy in reports to the agent.

use std::fs;
use std::process;

/// The flag of Envoy that sets `node.id`. Envoy Gateway and Istio start their proxies with it.
const NODE_FLAG: &str = "--service-node";

/// The name of this proxy in reports to the agent: the node's id, where it is a flag of Envoy, or else the
/// host's name and the process's id. Envoy does not give the node to modules while they are configured.
pub(crate) fn proxy_name() -> String {
    let command_line = fs::read("/proc/self/cmdline").unwrap_or_default();
    node_id(&command_line).unwrap_or_else(|| {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!("{}-{}", host.trim(), process::id())
    })
}

/// The node's id in a command line, whose arguments each end with a zero byte.
fn node_id(command_line: &[u8]) -> Option<String> {
    let mut arguments = command_line.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    let value = arguments.find_map(|argument| argument.strip_prefix(NODE_FLAG).map(str::to_owned))?;
    let id = match value.strip_prefix('=') {
        Some(id) => id.to_owned(),
        None => arguments.next()?.into_owned(),
    };
    (!id.is_empty()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_id_is_read_in_both_spellings() {
        for line in ["envoy\0--service-node\0pod-1\0-c\0x\0", "envoy\0-c\0x\0--service-node=pod-1\0"] {
            assert_eq!(node_id(line.as_bytes()).as_deref(), Some("pod-1"), "{line:?}");
        }
    }

    #[test]
    fn without_an_id_there_is_none() {
        for line in [
            "",
            "envoy\0-c\0x\0",
            "envoy\0--service-node",
            "envoy\0--service-node\0\0",
            "envoy\0--service-node=\0",
        ] {
            assert_eq!(node_id(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn two_processes_of_one_host_have_different_names() {
        assert!(proxy_name().ends_with(&format!("-{}", process::id())), "{}", proxy_name());
    }
}
