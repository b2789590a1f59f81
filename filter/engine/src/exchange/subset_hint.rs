//! The subset hint that an earlier filter leaves in the request's metadata.

use endpoint_picker::request::packed;
use endpoint_picker::request::subset::Subset;

use crate::proxy::Proxy;

/// Where the hint is.
const NAMESPACE: &str = "envoy.lb.subset_hint";
const KEY: &str = "x-gateway-destination-endpoint-subset";

/// Reads the hint: a list, or a comma-separated string. Any other value names no endpoint, and neither does one that the proxy
/// cannot return, such as a list with `null` in it.
pub(super) fn read(proxy: &impl Proxy) -> Subset {
    // Most requests have no metadata in this namespace, and reading it costs half as much as reading the key.
    let namespace = match proxy.metadata_namespace(NAMESPACE) {
        Ok(None) => return Subset::All,
        Ok(namespace) => namespace,
        Err(_) => None,
    };
    match proxy.metadata(NAMESPACE, KEY) {
        Ok(Some(value)) => Subset::from_metadata(&value),
        // Envoy returns an empty string like an absent value. The namespace's keys distinguish the two, if they can be read.
        Ok(None) => match namespace.as_deref().and_then(packed::strings) {
            Some(keys) if !keys.contains(&KEY) => Subset::All,
            _ => Subset::from_items([]),
        },
        Err(error) => {
            log::debug!("{error}; the subset hint names no endpoint");
            Subset::from_items([])
        }
    }
}
