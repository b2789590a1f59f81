//! Configurations of the picker that tests and benchmarks share.

/// Balances by nothing but the requests in flight.
pub const LEAST_LOADED: &str = r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: active-request-scorer
  - type: max-score-picker
  - type: single-profile-handler
schedulingProfiles:
  - name: default
    plugins:
      - pluginRef: active-request-scorer
      - pluginRef: max-score-picker
";
