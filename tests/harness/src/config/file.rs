//! A shipped Envoy configuration with other ports and paths.

use super::differences::merged;
use super::document::{connection_manager_of, http_filters, move_files, read, replace, text};
use super::native::to_native;
use super::picker;
use crate::{Filter, tools};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Name of the endpoint picker among the HTTP filters.
pub const PICKER: &str = "endpoint-picker";

/// Envoy's access log, where it is to be a file; see [`Config::log_to`].
pub const ACCESS_LOG: &str = "access.log";
const FILE_ACCESS_LOG: &str = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";

/// The folder Envoy watches for its endpoints, in the folder of [`Places`].
pub const EDS_FOLDER: &str = "eds";
/// Envoy's endpoints, in the folder of [`Places`].
pub const EDS_FILE: &str = "eds/model-servers.yaml";

/// Envoy's listeners, in the folder of [`Places`], if they are not part of the configuration.
pub const LISTENERS_FILE: &str = "eds/listeners.json";

/// An Envoy configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) document: Value,
    pub(super) filter: Filter,
}

/// The loopback ports and the folder of one Envoy.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Port for clients; 0 for a free one.
    pub port: u16,
    /// Port of the admin interface; 0 for a free one.
    pub admin_port: u16,
    /// The agent's port.
    pub agent_port: u16,
    /// Folder of the endpoints.
    pub folder: &'a Path,
}

impl Config {
    /// Reads a shipped configuration, converts it to this form of the filter, and replaces its ports and
    /// paths; `path`, from the repository's root, is that of a file, or of an example's folder.
    pub fn shipped(path: &str, filter: Filter, places: Places<'_>) -> Result<Self> {
        let config = Self::converted(path, filter)?;
        config.placed(places).with_context(|| format!("adapt {path}"))
    }

    /// Reads a shipped configuration and converts it to this form of the filter.
    pub fn converted(path: &str, filter: Filter) -> Result<Self> {
        let mut document = shipped(path)?;
        if filter == Filter::Native {
            to_native(&mut document).with_context(|| format!("convert {path}"))?;
        }
        Ok(Self { document, filter })
    }

    /// Reads the text of a configuration with the wasm filter and the paths of an installation, as documents
    /// have it, and converts it to this form of the filter.
    pub fn installed(text: &str, filter: Filter) -> Result<Self> {
        let text = text
            .replace("/etc/envoy/endpoint_picker.wasm", Filter::Wasm.shipped_path())
            .replace("/run/endpoint-picker", "target/run");
        let mut document = serde_saphyr::from_str(&text).context("parse the configuration")?;
        if filter == Filter::Native {
            to_native(&mut document)?;
        }
        Ok(Self { document, filter })
    }

    /// The same with other ports and paths.
    pub fn placed(mut self, places: Places<'_>) -> Result<Self> {
        self.replace_once(10000, places.port)?;
        self.replace_once(9901, places.admin_port)?;
        let agent = json!({"addresses": [format!("http://127.0.0.1:{}", places.agent_port)]});
        let listeners = self.document["static_resources"]["listeners"].as_array_mut();
        let mut has_polling_picker = false;
        for listener in listeners.context("the configuration has no listeners")? {
            has_polling_picker |=
                picker::poll_agents(http_filters(connection_manager_of(listener)?)?, &agent)?;
        }
        if !has_polling_picker {
            self.replace_once(9095, places.agent_port)?;
        }
        let eds = places.folder.join(EDS_FOLDER);
        move_files(&mut self.document, "target/run", text(&eds)?);
        Ok(self)
    }

    /// The form of its filter.
    pub fn filter(&self) -> Filter {
        self.filter
    }

    /// The whole document, for changes that this type has no method for.
    pub fn document(&mut self) -> &mut Value {
        &mut self.document
    }

    /// Writes the access log to a file, in the shipped format.
    pub fn log_to(&mut self, file: &Path) -> Result<()> {
        let log = self.connection_manager()?.pointer_mut("/access_log/0/typed_config");
        let log = log.and_then(Value::as_object_mut).context("the configuration has no access log")?;
        log.insert("@type".into(), FILE_ACCESS_LOG.into());
        log.insert("path".into(), text(file)?.into());
        Ok(())
    }

    /// Writes no access log.
    pub fn remove_access_log(&mut self) -> Result<()> {
        let manager = self.connection_manager()?.as_object_mut();
        manager
            .and_then(|manager| manager.remove("access_log"))
            .context("the configuration has no access log")?;
        Ok(())
    }

    /// Writes it in JSON, which Envoy reads as well.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, serde_json::to_vec_pretty(&self.document)?)
            .with_context(|| format!("write {}", path.display()))
    }

    pub(super) fn connection_manager(&mut self) -> Result<&mut Value> {
        self.document
            .pointer_mut("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config")
            .context("the configuration has no HTTP connection manager where it is expected")
    }

    /// Replaces `from`, which must occur once.
    fn replace_once(&mut self, from: impl Into<Value>, to: impl Into<Value>) -> Result<()> {
        let from = from.into();
        let count = replace(&mut self.document, &from, &to.into());
        ensure!(count == 1, "{from} occurs {count} times in the configuration, expected once");
        Ok(())
    }
}

/// A shipped configuration as it is: a file, or the example of a folder.
pub(super) fn shipped(path: &str) -> Result<Value> {
    if tools::root().join(path).is_dir() { merged(path) } else { read(Path::new(path)) }
}
