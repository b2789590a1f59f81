//! The conformance tests of the Gateway API Inference Extension bring an endpoint picker of their own: they
//! choose its endpoint by a header, and read the server's address from the response.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::envoy::{any, extension};
use super::wire::Builder;

/// `Route.response_headers_to_add`.
const RESPONSE_HEADERS: u32 = 10;

/// The route with the address of the server in its responses.
pub(super) fn with_served_endpoint(route: Builder) -> Builder {
    let header =
        Builder::default().bytes(1, "x-conformance-test-served-endpoint").bytes(2, "%UPSTREAM_HOST%");
    route.bytes(RESPONSE_HEADERS, Builder::default().bytes(1, header))
}

/// A filter that makes a subset hint of the tests' header: addresses, with ports or with all ports of the
/// pools.
pub(super) fn selection_filter(ports: &BTreeSet<u16>) -> Builder {
    let mut list = String::new();
    for port in ports {
        let _ = write!(list, "{port},");
    }
    let code = format!(
        r#"
function envoy_on_request(handle)
  local selection = handle:headers():get("test-epp-endpoint-selection")
  if selection == nil then return end
  local endpoints = {{}}
  for address in string.gmatch(selection, "[^, ]+") do
    if string.find(address, ":") then
      table.insert(endpoints, address)
    else
      for _, port in ipairs({{{list}}}) do table.insert(endpoints, address .. ":" .. port) end
    end
  end
  local hint = table.concat(endpoints, ",")
  handle:streamInfo():dynamicMetadata():set("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", hint)
end
"#
    );
    // Lua: default_source_code = 3, DataSource.inline_string = 3.
    let lua = Builder::default().bytes(3, Builder::default().bytes(3, code));
    extension("endpoint-picker/conformance", 4, any("envoy.extensions.filters.http.lua.v3.Lua", lua))
}
