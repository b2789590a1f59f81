//! Feature gates: `name`, `name=true` or `name=false`.

use crate::catalogue::manifests::fault::{Faults, quoted};

/// Queues requests in the picker. Not supported: the filter has no queue.
const FLOW_CONTROL: &str = "flowControl";

/// Makes replicas of the EPP share their view of the cluster. Accepted with any value, without effect.
const HA_NON_LEADER: &str = "haPopulateNonLeaderDatastore";

/// Go's spellings of a boolean, in any case.
const TRUE: [&str; 3] = ["1", "t", "true"];
const FALSE: [&str; 3] = ["0", "f", "false"];

pub(super) fn check(gates: &[String], faults: &mut Faults) {
    for (index, gate) in gates.iter().enumerate() {
        let at = format!("featureGates[{index}]");
        let (name, value) = gate.split_once('=').unwrap_or((gate, "true"));
        if ![FLOW_CONTROL, HA_NON_LEADER].contains(&name) {
            let text =
                format!("unknown feature gate {}; allowed are {FLOW_CONTROL}, {HA_NON_LEADER}", quoted(name));
            faults.push(at, text);
            continue;
        }
        let value = value.trim().to_ascii_lowercase();
        if TRUE.contains(&value.as_str()) && name == FLOW_CONTROL {
            let text = format!(
                "{} turns queueing on, which is not supported; allowed is {FLOW_CONTROL}=false",
                quoted(gate)
            );
            faults.push(at, text);
        } else if !TRUE.contains(&value.as_str()) && !FALSE.contains(&value.as_str()) {
            let text = format!(
                "{} is not a boolean; allowed are {name}, {name}=true and {name}=false",
                quoted(gate)
            );
            faults.push(at, text);
        }
    }
}
