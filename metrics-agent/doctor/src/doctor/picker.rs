//! An endpoint picker among the HTTP filters, in either form.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use endpoint_picker_engine::config::Limits;
use serde::Deserialize;
use serde_json::Value;

use super::dump::{TypedMessage, Version};

const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
const NATIVE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
const NATIVE_PER_ROUTE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute";

/// An endpoint picker.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    pub(crate) form: PickerForm,
    pub(crate) config: PickerSettings,
}

/// The form of a picker.
#[derive(Clone, Debug)]
pub(crate) enum PickerForm {
    Wasm(WasmSettings),
    Native,
}

/// Envoy's settings of a wasm filter that the checks read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WasmSettings {
    /// Whether the filter can wait for bodies.
    #[serde(rename = "allow_on_headers_stop_iteration")]
    pub(crate) waits_for_bodies: bool,
    /// Its behaviour after a trap; empty: Envoy's default.
    pub(crate) failure_policy: String,
    /// The older form of the policy `FAIL_OPEN`.
    pub(crate) fail_open: bool,
    capability_restriction_config: Restriction,
    vm_config: VmConfig,
    configuration: Value,
}

/// The place of the restriction from Envoy 1.40 on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct VmConfig {
    capability_restriction_config: Restriction,
}

/// The functions that a wasm module may call in Envoy, and Envoy in it; none: all.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Restriction {
    allowed_capabilities: BTreeMap<String, Value>,
}

/// The fields of a picker's own configuration that the checks read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PickerSettings {
    pub(crate) pool: String,
    pub(crate) agent_cluster: Option<String>,
    agent: AgentAddresses,
    /// The pool's endpoints, in place of an agent.
    pub(crate) endpoints: Vec<SocketAddr>,
    mode: String,
    steering: String,
    limits: HeldBytesLimit,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct AgentAddresses {
    addresses: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HeldBytesLimit {
    max_held_bytes: Option<u64>,
}

/// How a picker leads a request to its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steering {
    /// It sets the header only.
    Header,
    /// It sets the header and the metadata.
    Metadata,
    /// It overrides the host of any cluster.
    OverrideHost,
    /// It needs a cluster of the module.
    ModuleCluster,
}

/// The fields of `Wasm`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WasmFilter {
    config: WasmSettings,
}

/// The fields of `DynamicModuleFilter` and `DynamicModuleFilterPerRoute`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ModuleFilter {
    filter_config: Value,
}

/// Whether a filter's typed configuration is the native module's, and without a pool: it picks where a route
/// names one.
pub(crate) fn is_off(message: TypedMessage<'_>) -> bool {
    let Some(Ok(ModuleFilter { filter_config })) = message.read(NATIVE) else { return false };
    let text = TypedMessage::of(&filter_config).and_then(TypedMessage::text);
    let config: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
    config.is_some_and(|config| config.get("pool").is_some_and(Value::is_null))
}

impl Picker {
    /// The picker of a filter's typed configuration; `None` for other filters. A picker's own configuration
    /// names a pool, and the way to the agent or the pool's endpoints.
    pub(crate) fn of(message: TypedMessage<'_>) -> Option<Self> {
        if let Some(Ok(WasmFilter { config })) = message.read(WASM) {
            let own = PickerSettings::of(&config.configuration)?;
            return Some(Self { form: PickerForm::Wasm(config), config: own });
        }
        let module = message.read(NATIVE).or_else(|| message.read(NATIVE_PER_ROUTE));
        let ModuleFilter { filter_config } = module?.ok()?;
        Some(Self { form: PickerForm::Native, config: PickerSettings::of(&filter_config)? })
    }

    /// How it leads a request to its endpoint.
    pub(crate) fn steering(&self) -> Steering {
        match (&self.form, self.config.steering.as_str()) {
            (PickerForm::Wasm(_), _) => Steering::Header,
            (PickerForm::Native, "overrideHost") => Steering::OverrideHost,
            (PickerForm::Native, "cluster") => Steering::ModuleCluster,
            (PickerForm::Native, _) => Steering::Metadata,
        }
    }

    /// Whether Envoy has its statistics only when a request has come.
    pub(crate) fn counts_with_requests_only(&self, envoy: Option<Version>) -> bool {
        matches!(self.form, PickerForm::Native) && envoy.is_some_and(|it| (it.major, it.minor) < (1, 39))
    }

    /// Whether it picks; otherwise it only compares its choice with another picker's.
    pub(crate) fn picks(&self) -> bool {
        self.config.mode != "shadow"
    }

    /// The maximum of a body that the proxy must hold for it; `None`: it raises Envoy's limit itself.
    pub(crate) fn held_bytes(&self) -> Option<u64> {
        match self.form {
            PickerForm::Wasm(_) => {
                let default = || Limits::default().max_held_bytes as u64;
                Some(self.config.limits.max_held_bytes.unwrap_or_else(default))
            }
            PickerForm::Native => None,
        }
    }
}

impl WasmSettings {
    /// Whether this function, of Envoy or of the module, may be called.
    pub(crate) fn allows(&self, function: &str) -> bool {
        let places = [&self.capability_restriction_config, &self.vm_config.capability_restriction_config];
        places.into_iter().all(|Restriction { allowed_capabilities }| {
            allowed_capabilities.is_empty() || allowed_capabilities.contains_key(function)
        })
    }
}

impl PickerSettings {
    fn of(any: &Value) -> Option<Self> {
        let config: Self = serde_json::from_str(&TypedMessage::of(any)?.text()?).ok()?;
        ((config.has_agent() || !config.endpoints.is_empty()) && !config.pool.is_empty()).then_some(config)
    }

    /// Whether an agent has the pool.
    pub(crate) fn has_agent(&self) -> bool {
        self.agent_cluster.is_some() || !self.agent.addresses.is_empty()
    }

    /// The agents that the native module reaches itself.
    pub(crate) fn agent_addresses(&self) -> &[String] {
        &self.agent.addresses
    }
}
