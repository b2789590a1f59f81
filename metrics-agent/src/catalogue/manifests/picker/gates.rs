//! Feature gates: `name`, `name=true` or `name=false`.

use super::findings::Findings;
use crate::catalogue::manifests::fault::quoted;

/// Requests wait in the picker. Only the native module has a queue.
const FLOW_CONTROL: &str = "flowControl";

/// Makes replicas of the EPP share their view of the cluster. Accepted with any value, without effect.
const HA_NON_LEADER: &str = "haPopulateNonLeaderDatastore";

/// Go's spellings of a boolean, in any case.
const TRUE: [&str; 3] = ["1", "t", "true"];
const FALSE: [&str; 3] = ["0", "f", "false"];

/// Checks the gates. Returns whether requests wait; of two gates of one name, the later one counts, as in the EPP.
pub(super) fn check(gates: &[String], findings: &mut Findings) -> bool {
    let mut queues = None;
    for (index, gate) in gates.iter().enumerate() {
        let at = format!("featureGates[{index}]");
        let (name, value) = gate.split_once('=').unwrap_or((gate, "true"));
        if ![FLOW_CONTROL, HA_NON_LEADER].contains(&name) {
            let text =
                format!("unknown feature gate {}; allowed are {FLOW_CONTROL}, {HA_NON_LEADER}", quoted(name));
            findings.fault(at, text);
            continue;
        }
        let value = value.trim().to_ascii_lowercase();
        let is_on = TRUE.contains(&value.as_str());
        if !is_on && !FALSE.contains(&value.as_str()) {
            let text = format!(
                "{} is not a boolean; allowed are {name}, {name}=true and {name}=false",
                quoted(gate)
            );
            findings.fault(at, text);
        } else if name == FLOW_CONTROL {
            queues = is_on.then_some(at);
        }
    }
    let queues = queues.map(|at| {
        findings
            .warn(at, "requests wait only in the native module; the wasm filter refuses this configuration");
    });
    queues.is_some()
}
