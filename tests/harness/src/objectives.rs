//! An objective whose requests are the first to be shed.

/// The header that names the objective of a request.
pub const HEADER: &str = "x-llm-d-inference-objective";

/// The objective's name.
pub const SHEDDABLE: &str = "batch";

/// Its manifest.
pub const MANIFEST: &str = r"
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: { name: batch }
spec:
  poolRef: { name: default }
  priority: -1
";
