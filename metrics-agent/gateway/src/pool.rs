//! The pools of a route, as Envoy Gateway sends them, and the mark that keeps them on the route until the
//! last hook.

use std::collections::BTreeMap;

use metrics_agent_sources::kubernetes::Services;
use metrics_agent_status::extension::MARK;
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use serde::Deserialize;
use serde_json::Value as Json;

use super::ownership::{ObjectName, Ownership, Reference};
use super::route_metadata;
use super::wire::{Builder, Malformed, WireMessage};

/// Maximum number of pools of one route. The Gateway API allows 16 backends in a rule.
pub(super) const MAX_POOLS: usize = 64;

/// Maximum length of a mark, in bytes. [`MAX_POOLS`] pools with the longest names and eight ports each have
/// less.
const MAX_MARK_BYTES: usize = 128 * 1024;

/// The API group of the pools that routes may name, up to the version.
pub const GROUP: &str = "inference.networking.k8s.io/";

/// A pool among the backends of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePool {
    /// `namespace/name`.
    pub name: String,
    /// Whether the filter picks for it; other pools stay as they came.
    pub is_own: bool,
    /// Whether its servers speak HTTP/2 without TLS (`appProtocol: kubernetes.io/h2c`).
    pub is_h2c: bool,
    /// `endpointPickerRef.failureMode`, if the pool has one.
    pub failure_mode: Option<FailureMode>,
    /// The ports of its servers.
    pub ports: Vec<u16>,
}

/// A pool with what its status depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReferencedPool {
    /// As routes have it.
    pub(super) pool: RoutePool,
    /// Namespace and name of the Service by which it is an own pool.
    service: Option<ObjectName>,
}

/// Handling of requests that cannot be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum FailureMode {
    /// Envoy balances them.
    FailOpen,
    /// They are refused.
    FailClose,
}

impl FailureMode {
    /// Its name in the APIs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FailOpen => "FailOpen",
            Self::FailClose => "FailClose",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        [Self::FailOpen, Self::FailClose].into_iter().find(|mode| mode.as_str() == name)
    }
}

/// The fields of an object that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolObject {
    api_version: String,
    kind: String,
    metadata: PoolMetadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct PoolMetadata {
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    app_protocol: Option<String>,
    endpoint_picker_ref: Option<PickerRef>,
    #[serde(default)]
    target_ports: Vec<PoolPort>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PickerRef {
    #[serde(default)]
    group: String,
    #[serde(default = "service")]
    kind: String,
    name: String,
    failure_mode: Option<FailureMode>,
}

fn service() -> String {
    "Service".to_owned()
}

#[derive(Deserialize)]
struct PoolPort {
    number: u16,
}

impl RoutePool {
    /// Reads an object; `None`: it is not an `InferencePool`, or not one that the API server would have
    /// accepted.
    pub fn read(json: &[u8], ownership: &Ownership) -> Option<Self> {
        serde_json::from_slice(json)
            .ok()
            .and_then(|object| ReferencedPool::of(object, ownership))
            .map(|it| it.pool)
    }

    fn to_value(&self) -> Value {
        let text = |text: &str| Kind::StringValue(text.to_owned()).into();
        let number = |port: &u16| Kind::NumberValue(f64::from(*port)).into();
        let ports = ListValue { values: self.ports.iter().map(number).collect() };
        let mut fields = BTreeMap::from([
            ("pool".to_owned(), text(&self.name)),
            ("own".to_owned(), Kind::BoolValue(self.is_own).into()),
            ("h2c".to_owned(), Kind::BoolValue(self.is_h2c).into()),
            ("ports".to_owned(), Kind::ListValue(ports).into()),
        ]);
        if let Some(mode) = self.failure_mode {
            fields.insert("failureMode".to_owned(), text(mode.as_str()));
        }
        Kind::StructValue(Struct { fields }).into()
    }

    fn of_value(value: &Value) -> Option<Self> {
        let Some(Kind::StructValue(Struct { fields })) = &value.kind else { return None };
        let kind = |field: &str| fields.get(field)?.kind.as_ref();
        let Some(Kind::StringValue(name)) = kind("pool") else { return None };
        let is = |field: &str| matches!(kind(field), Some(Kind::BoolValue(true)));
        let failure_mode = match kind("failureMode") {
            Some(Kind::StringValue(name)) => FailureMode::of_name(name),
            _ => None,
        };
        let ports = match kind("ports") {
            Some(Kind::ListValue(ports)) => ports.values.iter().filter_map(port).collect(),
            _ => Vec::new(),
        };
        Some(Self { name: name.clone(), is_own: is("own"), is_h2c: is("h2c"), failure_mode, ports })
    }
}

impl ReferencedPool {
    /// Reads an object; `None` as for [`RoutePool::read`].
    pub(super) fn read(object: &Json, ownership: &Ownership) -> Option<Self> {
        PoolObject::deserialize(object).ok().and_then(|object| Self::of(object, ownership))
    }

    /// Whether the Service by which it is an own pool does not exist.
    pub(super) fn lacks_service(&self, services: &Services) -> bool {
        self.service.as_ref().is_some_and(|(namespace, name)| services.lack(namespace, name))
    }

    fn of(object: PoolObject, ownership: &Ownership) -> Option<Self> {
        if object.kind != "InferencePool" || !object.api_version.starts_with(GROUP) {
            return None;
        }
        let PoolMetadata { name, namespace } = object.metadata;
        let picker = object.spec.endpoint_picker_ref;
        let reference = match &picker {
            None => Reference::Absent,
            Some(PickerRef { group, kind, name, .. }) if group.is_empty() && kind == "Service" => {
                Reference::Service(name)
            }
            Some(_) => Reference::Other,
        };
        let is_own = ownership.is_own(&namespace, &name, reference);
        let service = match reference {
            Reference::Service(service) if is_own && !ownership.is_named(&namespace, &name) => {
                Some((namespace.clone(), service.to_owned()))
            }
            Reference::Absent | Reference::Service(_) | Reference::Other => None,
        };
        let pool = RoutePool {
            is_own,
            name: format!("{namespace}/{name}"),
            is_h2c: object.spec.app_protocol.as_deref() == Some("kubernetes.io/h2c"),
            failure_mode: picker.and_then(|picker| picker.failure_mode),
            ports: object.spec.target_ports.iter().map(|port| port.number).collect(),
        };
        Some(Self { pool, service })
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in the range of ports")]
fn port(value: &Value) -> Option<u16> {
    match value.kind {
        Some(Kind::NumberValue(port)) if (1.0..=65535.0).contains(&port) => Some(port as u16),
        _ => None,
    }
}

/// The route with its pools in its metadata. Further metadata stays.
pub fn mark(route: &[u8], pools: &[RoutePool]) -> Vec<u8> {
    let pools = ListValue { values: pools.iter().map(RoutePool::to_value).collect() };
    let mark = Struct { fields: [("pools".to_owned(), Kind::ListValue(pools).into())].into() };
    route_metadata::add(Builder::after(route.to_vec()), MARK, &mark.encode_to_vec()).into_bytes()
}

/// The pools of a marked route, in the order of the rule; none for other routes.
pub fn marked(route: &WireMessage<'_>) -> Result<Vec<RoutePool>, Malformed> {
    let Some(mark) = route_metadata::find(route, MARK)? else { return Ok(Vec::new()) };
    if mark.len() > MAX_MARK_BYTES {
        return Err(Malformed);
    }
    let mark = Struct::decode(&*mark).map_err(|_| Malformed)?;
    Ok(match mark.fields.get("pools").and_then(|pools| pools.kind.as_ref()) {
        Some(Kind::ListValue(list)) => {
            list.values.iter().take(MAX_POOLS).filter_map(RoutePool::of_value).collect()
        }
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ownership() -> Ownership {
        Ownership {
            pools: [("team".to_owned(), "moved".to_owned())].into(),
            services: [("team".to_owned(), "picker".to_owned())].into(),
            all: false,
        }
    }

    fn pool(name: &str, spec: &Json) -> Json {
        json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": name, "namespace": "team", "managedFields": []},
            "spec": spec, "status": {"parents": []},
        })
    }

    fn read(object: &Json) -> Option<RoutePool> {
        RoutePool::read(object.to_string().as_bytes(), &ownership())
    }

    #[test]
    fn pools_without_a_picker_with_our_service_and_named_ones_are_own() {
        let is_own = |name: &str, spec: &Json| read(&pool(name, spec)).unwrap().is_own;
        assert!(is_own("chat", &json!({})));
        assert!(is_own("chat", &json!({"endpointPickerRef": {"name": "picker"}})));
        assert!(is_own("moved", &json!({"endpointPickerRef": {"name": "epp"}})));
        assert!(!is_own("chat", &json!({"endpointPickerRef": {"name": "epp"}})));
        let other_kind =
            json!({"endpointPickerRef": {"group": "x.example", "kind": "Picker", "name": "picker"}});
        assert!(!is_own("chat", &other_kind));
        assert!(is_own("moved", &other_kind));
    }

    #[test]
    fn a_pool_depends_on_the_service_by_which_it_is_an_own_pool() {
        let lacks = |name: &str, spec: &Json, services: &[(&str, &str)]| {
            let pool = ReferencedPool::read(&pool(name, spec), &ownership()).unwrap();
            pool.lacks_service(&Services::all(services))
        };
        let by_reference = json!({"endpointPickerRef": {"name": "picker"}});
        assert!(lacks("chat", &by_reference, &[("other", "picker")]));
        assert!(!lacks("chat", &by_reference, &[("team", "picker")]));
        assert!(!lacks("chat", &json!({}), &[]));
        assert!(!lacks("moved", &json!({"endpointPickerRef": {"name": "epp"}}), &[]), "its EPP may be gone");
        assert!(
            !lacks("chat", &json!({"endpointPickerRef": {"name": "epp"}}), &[]),
            "it is another picker's"
        );
    }

    #[test]
    fn only_pools_of_the_stable_group_are_read() {
        let mut object = pool("chat", &json!({"targetPorts": [{"number": 8000}]}));
        assert_eq!(read(&object).unwrap().name, "team/chat");
        for (field, value) in [("kind", "Service"), ("apiVersion", "inference.networking.x-k8s.io/v1alpha2")]
        {
            let mut other = object.clone();
            other[field] = value.into();
            assert_eq!(read(&other), None);
        }
        object["metadata"]["namespace"] = 7.into();
        assert_eq!(read(&object), None);
        assert_eq!(RoutePool::read(b"[", &ownership()), None);
    }

    #[test]
    fn a_mark_keeps_the_pools_and_the_routes_other_metadata() {
        let spec = json!({
            "appProtocol": "kubernetes.io/h2c", "targetPorts": [{"number": 8000}, {"number": 65535}],
            "endpointPickerRef": {"name": "epp", "failureMode": "FailOpen"},
        });
        let pools = [read(&pool("chat", &spec)).unwrap(), read(&pool("other", &json!({}))).unwrap()];
        assert_eq!((pools[0].is_own, pools[0].is_h2c, &*pools[0].ports), (false, true, &[8000, 65535][..]));
        assert_eq!(pools[0].failure_mode, Some(FailureMode::FailOpen));

        let entry = Builder::default().bytes(1, "envoy-gateway").bytes(2, [10, 0]);
        let route = Builder::default().bytes(14, "name").bytes(4, Builder::default().bytes(1, &entry));
        let marked_route = mark(route.as_ref(), &pools);
        let message = WireMessage::read(&marked_route).unwrap();
        assert_eq!(marked(&message).unwrap(), pools);
        let metadata = message.message(4).unwrap();
        assert_eq!(WireMessage::read(&metadata).unwrap().all(1).next(), Some(entry.as_ref()));
        assert_eq!(marked(&WireMessage::read(route.as_ref()).unwrap()), Ok(Vec::new()));
    }
}
