//! Responses of the filter in place of a server's response.
//!
//! The call of the SDK passes no details of the response code, and traps when Envoy refuses it, so Envoy's
//! function is declared again here (docs/design/decisions/2002).

#![expect(unsafe_code, reason = "Envoy's function takes pointers")]

use endpoint_picker_engine::proxy::{ProxyError, Result};
use proxy_wasm::types::Status;

use super::header_pairs::packed;

/// No gRPC status.
const NO_GRPC_STATUS: i32 = -1;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_length: usize,
        body: *const u8,
        body_length: usize,
        headers: *const u8,
        headers_length: usize,
        grpc_status: i32,
    ) -> u32;
}

/// Has Envoy respond to the request. `details` are for `%RESPONSE_CODE_DETAILS%` of the access log.
pub(super) fn send(status: u16, headers: &[(&str, &str)], body: &[u8], details: &str) -> Result<()> {
    let headers = packed(headers);
    // SAFETY: the signature is that of proxy-wasm 0.2.1. Each pointer and length are of one slice that
    // outlives the call, and Envoy keeps none of them. A status may have any value.
    let status = unsafe {
        proxy_send_local_response(
            status.into(),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    };
    if status == Status::Ok as u32 {
        Ok(())
    } else {
        Err(ProxyError { call: "send_local_response", status: format!("status {status}") })
    }
}
