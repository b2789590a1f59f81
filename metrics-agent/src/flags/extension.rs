//! Flags about the extension server of Envoy Gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use metrics_agent_gateway::ownership::{ObjectName, Ownership};
use metrics_agent_gateway::server::{ServerSettings, TlsFiles};
use metrics_agent_gateway::settings::{FilterConfig, HookSettings, Module};

use super::values::{self, FlagError};

/// Flags about the extension server of Envoy Gateway.
#[derive(Args, Debug)]
#[command(next_help_heading = "Extension server of Envoy Gateway")]
pub(super) struct ExtensionFlags {
    /// Be Envoy Gateway's extension server on this address, so that the native module picks for `HTTPRoute`s
    /// to an `InferencePool`. Except on a loopback address it requires TLS with certificates of both sides.
    /// The address is printed.
    #[arg(long, value_name = "IP:PORT", requires = "extension_filter_config")]
    extension_server: Option<SocketAddr>,

    /// Certificate chain of the extension server, in PEM.
    #[arg(long, value_name = "PATH", requires_all = ["extension_server", "extension_key", "extension_client_ca"])]
    extension_cert: Option<PathBuf>,

    /// Key of --extension-cert, in PEM.
    #[arg(long, value_name = "PATH", requires = "extension_cert")]
    extension_key: Option<PathBuf>,

    /// Authorities of Envoy Gateway's certificate, in PEM.
    #[arg(long, value_name = "PATH", requires = "extension_cert")]
    extension_client_ca: Option<PathBuf>,

    /// A JSON file with the native module's configuration that each route gets, without `pool` and
    /// `steering`: the agents' addresses and token as the proxies see them, and limits. Read at the start.
    #[arg(long, value_name = "PATH", requires = "extension_server")]
    extension_filter_config: Option<PathBuf>,

    /// Where Envoy finds the native module: the path of its file in the proxy's container, or its name in
    /// Envoy's search path.
    #[arg(long, value_name = "PATH|NAME", requires = "extension_server", default_value = "endpoint_picker")]
    extension_module: String,

    /// Pick for pools whose `endpointPickerRef` names this Service; may be repeated. With --kubernetes their
    /// requests get 503 while the Service does not exist. Pools without a reference are always picked for.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "extension_server", value_parser = values::namespaced_object)]
    extension_picker_service: Vec<ObjectName>,

    /// Pick for this pool, whatever its `endpointPickerRef` names; may be repeated.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "extension_server", value_parser = values::namespaced_object)]
    extension_pool: Vec<ObjectName>,

    /// Obey the headers of the conformance tests, which let every client choose a server, and pick for all
    /// pools.
    #[arg(long, hide = true, requires = "extension_server")]
    extension_conformance: bool,
}

impl ExtensionFlags {
    /// `None`: there is no extension server.
    pub(super) fn settings(self) -> Result<Option<ServerSettings>, FlagError> {
        let Some((address, file)) = self.extension_server.zip(self.extension_filter_config) else {
            return Ok(None);
        };
        let tls = match (self.extension_cert, self.extension_key, self.extension_client_ca) {
            (Some(certificate), Some(key), Some(client_authorities)) => {
                Some(TlsFiles { certificate, key, client_authorities })
            }
            _ => None,
        };
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(FlagError(format!(
                "--extension-server {address} requires --extension-cert, --extension-key and --extension-client-ca; without them allowed \
                 is a loopback address"
            )));
        }
        let text = std::fs::read(&file)
            .map_err(|error| FlagError(format!("{} (--extension-filter-config): {error}", file.display())))?;
        let filter = FilterConfig::read(&file, &text).map_err(|error| FlagError(error.to_string()))?;
        let hooks = HookSettings {
            ownership: Ownership {
                pools: self.extension_pool.into_iter().collect(),
                services: self.extension_picker_service.into_iter().collect(),
                all: self.extension_conformance,
            },
            module: Module::of_flag(&self.extension_module),
            filter,
            conformance: self.extension_conformance,
        };
        Ok(Some(ServerSettings { address, tls, hooks: Arc::new(hooks) }))
    }
}
