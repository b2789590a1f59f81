//! Feature gates: `name`, `name=true` or `name=false`.

use crate::catalogue::manifests::fault::{Faults, quoted};

/// Queues requests in the picker. There is no such queue here.
const FLOW_CONTROL: &str = "flowControl";

/// Lets replicas of the picker share their knowledge of the cluster. Without meaning here, whatever its value.
const HA_NON_LEADER: &str = "haPopulateNonLeaderDatastore";

/// Go's texts for a truth value, which are read without regard to case.
const TRUE: [&str; 3] = ["1", "t", "true"];
const FALSE: [&str; 3] = ["0", "f", "false"];

pub(super) fn check(gates: &[String], faults: &mut Faults) {
    for (index, gate) in gates.iter().enumerate() {
        let at = format!("featureGates[{index}]");
        let (name, value) = gate.split_once('=').unwrap_or((gate, "true"));
        if ![FLOW_CONTROL, HA_NON_LEADER].contains(&name) {
            let text =
                format!("{} is no feature gate; allowed are {FLOW_CONTROL}, {HA_NON_LEADER}", quoted(name));
            faults.push(at, text);
            continue;
        }
        let value = value.trim().to_ascii_lowercase();
        if TRUE.contains(&value.as_str()) && name == FLOW_CONTROL {
            let text = format!(
                "{} asks for queueing, which there is not; allowed is {FLOW_CONTROL}=false",
                quoted(gate)
            );
            faults.push(at, text);
        } else if !TRUE.contains(&value.as_str()) && !FALSE.contains(&value.as_str()) {
            let text = format!(
                "{} is no truth value; allowed are {name}, {name}=true and {name}=false",
                quoted(gate)
            );
            faults.push(at, text);
        }
    }
}
