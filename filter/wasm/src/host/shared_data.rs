//! Envoy's shared data.

use endpoint_picker_engine::proxy::{ProxyError, Result};
use endpoint_picker_workers::{SharedData, Versioned};
use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;

use super::envoy::{Envoy, refused};

impl SharedData for Envoy {
    type Error = ProxyError;

    fn get(&self, key: &str) -> Result<Versioned> {
        let (bytes, version) = hostcalls::get_shared_data(key).map_err(refused("get_shared_data"))?;
        Ok(Versioned { bytes: bytes.unwrap_or_default(), version })
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        hostcalls::set_shared_data(key, Some(value), None).map_err(refused("set_shared_data"))
    }

    fn compare_and_swap(&self, key: &str, value: &[u8], version: Option<u32>) -> Result<bool> {
        match hostcalls::set_shared_data(key, Some(value), version) {
            Ok(()) => Ok(true),
            Err(Status::CasMismatch) => Ok(false),
            Err(status) => Err(refused("set_shared_data")(status)),
        }
    }
}
