//! `InferencePool`: the endpoints of a pool.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use deserr::Deserr;
use endpoint_picker_wire::v1;

use super::fault::Faults;
use super::fields::{Name, PoolGroup, Port, Texts};

/// Maximum number of ports of one pool, as in the API.
const MAX_TARGET_PORTS: usize = 8;

/// A pool of any version.
#[derive(Clone, Debug)]
pub(crate) struct InferencePool {
    pub group: PoolGroup,
    pub selector: BTreeMap<String, String>,
    pub target_ports: Vec<NonZeroU16>,
    pub failure_mode: v1::FailureMode,
    pub app_protocol: AppProtocol,
}

/// `inference.networking.k8s.io/v1`
#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(crate) struct V1 {
    selector: PoolSelector,
    target_ports: TargetPorts,
    #[deserr(default)]
    app_protocol: AppProtocol,
    #[deserr(default)]
    endpoint_picker_ref: Option<EndpointPickerRef>,
}

/// `inference.networking.x-k8s.io/v1alpha2`
#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(crate) struct V1Alpha2 {
    selector: SelectorLabels,
    target_port_number: Port,
    #[deserr(default)]
    extension_ref: Option<ExtensionRef>,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct PoolSelector {
    match_labels: SelectorLabels,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, try_from(Texts) = Self::new -> String)]
struct SelectorLabels(BTreeMap<String, String>);

impl SelectorLabels {
    fn new(Texts(labels): Texts) -> Result<Self, String> {
        if (1..=64).contains(&labels.len()) {
            Ok(Self(labels))
        } else {
            Err(format!("has {} labels; allowed are 1 to 64", labels.len()))
        }
    }
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
struct TargetPort {
    number: Port,
}

#[derive(Debug, Deserr)]
#[deserr(error = Faults, try_from(Vec<TargetPort>) = Self::new -> String)]
struct TargetPorts(Vec<NonZeroU16>);

impl TargetPorts {
    fn new(ports: Vec<TargetPort>) -> Result<Self, String> {
        let allowed = format!("allowed are 1 to {MAX_TARGET_PORTS} different ports");
        if ports.is_empty() || ports.len() > MAX_TARGET_PORTS {
            return Err(format!("has {} ports; {allowed}", ports.len()));
        }
        let mut numbers = Vec::with_capacity(ports.len());
        for TargetPort { number } in ports {
            if numbers.contains(&number.0) {
                return Err(format!("{} is given twice; {allowed}", number.0));
            }
            numbers.push(number.0);
        }
        Ok(Self(numbers))
    }
}

/// The protocol of gateways to the servers. Envoy's configuration has it, so it is only compared with the
/// parsers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserr)]
#[deserr(error = Faults)]
pub enum AppProtocol {
    /// HTTP/1.1.
    #[default]
    #[deserr(rename = "http")]
    Http,
    /// HTTP/2 without TLS.
    #[deserr(rename = "kubernetes.io/h2c")]
    H2c,
}

/// The address of the EPP. Only the failure mode is used, because the picker runs in Envoy.
#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct EndpointPickerRef {
    #[deserr(default, rename = "group")]
    _group: Option<String>,
    #[deserr(default, rename = "kind")]
    _kind: Option<String>,
    #[deserr(rename = "name")]
    _name: Name,
    #[deserr(default, rename = "port")]
    _port: Option<TargetPort>,
    #[deserr(default = PoolFailureMode::FailClose)]
    failure_mode: PoolFailureMode,
}

/// The address of the EPP in the older version.
#[derive(Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct ExtensionRef {
    #[deserr(default, rename = "group")]
    _group: Option<String>,
    #[deserr(default, rename = "kind")]
    _kind: Option<String>,
    #[deserr(rename = "name")]
    _name: Name,
    #[deserr(default, rename = "portNumber")]
    _port_number: Option<Port>,
    /// The name of `portNumber` in the API's early documents.
    #[deserr(default, rename = "port")]
    _port: Option<Port>,
    #[deserr(default = PoolFailureMode::FailClose)]
    failure_mode: PoolFailureMode,
}

#[derive(Clone, Copy, Debug, Deserr)]
#[deserr(error = Faults)]
enum PoolFailureMode {
    FailOpen,
    FailClose,
}

impl PoolFailureMode {
    fn on_the_wire(self) -> v1::FailureMode {
        match self {
            Self::FailOpen => v1::FailureMode::FailOpen,
            Self::FailClose => v1::FailureMode::FailClose,
        }
    }
}

impl From<V1> for InferencePool {
    fn from(spec: V1) -> Self {
        let failure_mode = spec.endpoint_picker_ref.map(|picker| picker.failure_mode.on_the_wire());
        Self {
            group: PoolGroup::Stable,
            selector: spec.selector.match_labels.0,
            target_ports: spec.target_ports.0,
            failure_mode: failure_mode.unwrap_or_default(),
            app_protocol: spec.app_protocol,
        }
    }
}

impl From<V1Alpha2> for InferencePool {
    fn from(spec: V1Alpha2) -> Self {
        let failure_mode = spec.extension_ref.map(|extension| extension.failure_mode.on_the_wire());
        Self {
            group: PoolGroup::Experimental,
            selector: spec.selector.0,
            target_ports: vec![spec.target_port_number.0],
            failure_mode: failure_mode.unwrap_or_default(),
            app_protocol: AppProtocol::Http,
        }
    }
}
