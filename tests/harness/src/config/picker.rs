//! An endpoint picker among the HTTP filters, in either form, and its own configuration: JSON in a string.

use anyhow::{Context, Result};
use serde_json::Value;
use std::net::SocketAddr;

const WASM_CONFIGURATION: &str = "/typed_config/config/configuration/value";
const NATIVE_CONFIGURATION: &str = "/typed_config/filter_config/value";

/// The pickers among these filters.
pub(super) fn all_of(filters: &mut [Value]) -> impl Iterator<Item = &mut Value> {
    filters.iter_mut().filter(|filter| is_wasm(filter) || is_native(filter))
}

/// Whether a filter is a picker in wasm.
pub(super) fn is_wasm(filter: &Value) -> bool {
    filter.pointer(WASM_CONFIGURATION).is_some()
}

fn is_native(filter: &Value) -> bool {
    filter.pointer("/typed_config/filter_name").is_some_and(|name| name == "endpoint-picker")
}

/// The fields of a picker's configuration.
pub(super) fn fields(picker: &Value) -> Result<Value> {
    let text = picker.pointer(WASM_CONFIGURATION).or_else(|| picker.pointer(NATIVE_CONFIGURATION));
    let text = text.and_then(Value::as_str).context("the endpoint picker has no configuration")?;
    serde_json::from_str(text).context("the endpoint picker's configuration")
}

/// Sets a field of it.
pub(super) fn set_field(picker: &mut Value, field: &str, value: Value) -> Result<()> {
    let mut fields = fields(picker)?;
    fields[field] = value;
    set_fields(picker, &fields)
}

/// Replaces the agents of the pickers that poll theirs themselves; returns whether there are any such
/// pickers, or pickers without an agent.
pub(super) fn poll_agents(filters: &mut [Value], agent: &Value) -> Result<bool> {
    let mut has_any = false;
    for picker in all_of(filters) {
        let fields = fields(picker)?;
        if fields.get("agent").is_some() {
            set_field(picker, "agent", agent.clone())?;
        }
        has_any |= fields.get("agent").or_else(|| fields.get("endpoints")).is_some();
    }
    Ok(has_any)
}

/// Has a picker take these endpoints in place of its agent's.
pub(super) fn list_endpoints(picker: &mut Value, endpoints: &[SocketAddr]) -> Result<()> {
    let mut fields = fields(picker)?;
    let by_name = fields.as_object_mut().context("a configuration of the picker")?;
    by_name.retain(|name, _| !["agent", "agentCluster"].contains(&name.as_str()));
    let endpoints: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
    by_name.insert("endpoints".into(), endpoints.into());
    set_fields(picker, &fields)
}

fn set_fields(picker: &mut Value, fields: &Value) -> Result<()> {
    let place = if is_wasm(picker) { WASM_CONFIGURATION } else { NATIVE_CONFIGURATION };
    *picker.pointer_mut(place).context("the endpoint picker has no configuration")? =
        fields.to_string().into();
    Ok(())
}
