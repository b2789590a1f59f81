//! Listeners: in a file that Envoy watches, and more than one.

use super::document::text;
use super::file::{Config, LISTENERS_FILE};
use crate::endpoint_files::replace;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;

/// Name of the shipped listener.
const LISTENER: &str = "inference";

impl Config {
    /// Adds a copy of the listener under this name, at a port of its own.
    pub fn repeat_listener(&mut self, name: &str) -> Result<()> {
        let listeners = self.listeners()?;
        let mut copy = listeners.first().context("a listener")?.clone();
        copy["name"] = name.into();
        listeners.push(copy);
        Ok(())
    }

    /// Writes the listeners to [`LISTENERS_FILE`], for an Envoy that was started with
    /// [`Self::with_listeners_in_file`].
    pub fn write_listeners(&mut self, folder: &Path) -> Result<()> {
        let mut resources = self.listeners()?.clone();
        for listener in &mut resources {
            listener["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
        }
        replace(&folder.join(LISTENERS_FILE), &json!({"resources": resources}).to_string())
    }

    /// The same configuration, except that Envoy has the listeners from the file and watches it.
    pub fn with_listeners_in_file(&self, folder: &Path) -> Result<Self> {
        let file = folder.join(LISTENERS_FILE);
        let watched = file.parent().context("a file has a folder")?;
        let mut config = self.clone();
        config.listeners()?.clear();
        let source = json!({"path": text(&file)?, "watched_directory": {"path": text(watched)?}});
        config.document["dynamic_resources"] =
            json!({"lds_config": {"resource_api_version": "V3", "path_config_source": source}});
        Ok(config)
    }

    fn listeners(&mut self) -> Result<&mut Vec<Value>> {
        let listeners = self.document["static_resources"]["listeners"].as_array_mut();
        listeners
            .filter(|all| all.iter().any(|one| one["name"] == LISTENER))
            .context("no listener is where it is expected")
    }
}
