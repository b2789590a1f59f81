//! Endpoint files for Envoy's EDS.

use core::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use endpoint_picker::pool::Endpoint;
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::proxy::metadata::{LB, LB_KEYS};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

const LOAD_ASSIGNMENT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The placeholder of the pool's name in a path or a cluster's name.
const POOL: &str = "{pool}";

/// An endpoint file and the Envoy cluster that reads it. `{pool}` in either is replaced by the pool's name;
/// in the path, with `_` in the place of the `/` after a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The file of Envoy's `path_config_source`.
    pub path: PathBuf,
    /// The name of the EDS cluster, or its `service_name`.
    pub cluster: String,
}

impl Target {
    /// The target of one pool.
    #[must_use]
    pub fn of_pool(&self, pool: &str) -> Self {
        // Names of namespaces and pools have no underscore, so different pools have different files.
        let path = self.path.to_string_lossy().replace(POOL, &pool.replace('/', "_")).into();
        Self { path, cluster: self.cluster.replace(POOL, pool) }
    }

    /// Whether each pool has a separate file.
    pub fn has_file_per_pool(&self) -> bool {
        self.path.to_string_lossy().contains(POOL)
    }

    /// Whether neither the path nor the cluster's name depends on the pool.
    pub fn is_of_any_pool(&self) -> bool {
        !self.has_file_per_pool() && !self.cluster.contains(POOL)
    }

    /// Refuses a path whose directory does not exist, unless it depends on the pool.
    pub fn check(&self) -> Result<(), EdsError> {
        if directory(&self.path).to_string_lossy().contains(POOL) {
            return Ok(());
        }
        let found = std::fs::metadata(directory(&self.path));
        let problem = match found {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => io::Error::from(io::ErrorKind::NotADirectory),
            Err(error) => error,
        };
        Err(EdsError { path: self.path.clone(), error: problem })
    }
}

/// Writes the file of one cluster.
#[derive(Debug)]
pub struct EdsFile {
    target: Target,
    /// The hosts in the file.
    written: Option<Value>,
}

impl EdsFile {
    /// A file that is not written yet.
    pub fn new(target: Target) -> Self {
        Self { target, written: None }
    }

    /// Writes the file if addresses or labels have changed, or the file is gone; returns whether it was
    /// written.
    ///
    /// `version` is Envoy's `version_info`. The file is moved into place, so Envoy reads the old file or the
    /// new one, never a part.
    pub fn write(&mut self, endpoints: &[Endpoint], version: &str) -> Result<bool, EdsError> {
        let hosts: Value = endpoints.iter().map(host).collect();
        if self.written.as_ref() == Some(&hosts) && !self.is_gone() {
            return Ok(false);
        }
        let response = discovery_response(&self.target.cluster, &hosts, version);
        replace(&self.target.path, response.to_string().as_bytes())
            .map_err(|error| EdsError { path: self.target.path.clone(), error })?;
        self.written = Some(hosts);
        Ok(true)
    }

    /// Whether the file was written but no longer exists.
    pub fn is_gone(&self) -> bool {
        self.written.is_some() && !self.target.path.exists()
    }

    /// Removes the file; Envoy keeps its hosts.
    pub fn remove(self) -> Result<(), EdsError> {
        match std::fs::remove_file(&self.target.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(EdsError { path: self.target.path, error })
            }
            _ => Ok(()),
        }
    }
}

/// An endpoint as Envoy's `LbEndpoint`, with its labels and address as metadata for a subset load balancer.
/// The address has the key of the picker's choice in a request's metadata; no label takes the place of a key
/// of the picker.
fn host(endpoint: &Endpoint) -> Value {
    let (ip, port) = (endpoint.address().ip().to_string(), endpoint.address().port());
    let labels = endpoint.labels().filter(|(key, _)| !LB_KEYS.contains(key));
    let mut metadata: Map<String, Value> =
        labels.map(|(key, value)| (key.to_owned(), value.into())).collect();
    metadata.insert(DESTINATION.to_owned(), endpoint.printed_address().into());
    json!({
        "endpoint": {"address": {"socket_address": {"address": ip, "port_value": port}}},
        "metadata": {"filter_metadata": {LB: metadata}},
    })
}

fn discovery_response(cluster: &str, hosts: &Value, version: &str) -> Value {
    json!({
        "version_info": version,
        "type_url": LOAD_ASSIGNMENT,
        "resources": [{
            "@type": LOAD_ASSIGNMENT,
            "cluster_name": cluster,
            "endpoints": [{"lb_endpoints": hosts}],
        }],
    })
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = NamedTempFile::with_prefix_in(".eds-", directory(path))?;
    file.write_all(content)?;
    #[cfg(unix)]
    {
        // Envoy often runs as a different user.
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file could not be written.
#[derive(Debug)]
pub struct EdsError {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for EdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot write the EDS file {} (--eds-file): {}; its directory must exist and be writable",
            self.path.display(),
            self.error
        )
    }
}

impl core::error::Error for EdsError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(addresses: &[&str]) -> Vec<Endpoint> {
        addresses.iter().map(|a| Endpoint::new((*a).to_owned(), a.parse().unwrap(), vec![])).collect()
    }

    fn target(directory: &Path) -> Target {
        Target { path: directory.join("eds.json"), cluster: "model-servers".to_owned() }
    }

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn the_file_lists_every_endpoint_of_the_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let target = target(directory.path());
        let mut file = EdsFile::new(target.clone());
        assert!(file.write(&endpoints(&["10.0.0.1:8000", "[2001:db8::1]:9"]), "1").unwrap());
        let response = read(&target.path);
        assert_eq!(response["version_info"], "1");
        let assignment = &response["resources"][0];
        assert_eq!(assignment["cluster_name"], "model-servers");
        let hosts = assignment["endpoints"][0]["lb_endpoints"].as_array().unwrap();
        let sockets: Vec<_> = hosts.iter().map(|h| &h["endpoint"]["address"]["socket_address"]).collect();
        assert_eq!(*sockets[0], json!({"address": "10.0.0.1", "port_value": 8000}));
        assert_eq!(*sockets[1], json!({"address": "2001:db8::1", "port_value": 9}));
    }

    #[test]
    fn hosts_carry_their_labels_and_address_for_the_subset_load_balancer() {
        let labelled = |zone: &str| {
            // A label cannot replace the address, nor match the mark of a request that must not leave its
            // hint.
            let labels = [
                ("zone", zone),
                ("x-gateway-destination-endpoint", "10.9.9.9:1"),
                ("endpoint-picker-fallback", "none"),
                ("x-gateway-destination-endpoint-scores", "1"),
                ("x-gateway-destination-endpoint-served", "10.9.9.9:1"),
            ];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
            [Endpoint::new("a".to_owned(), "10.0.0.1:8000".parse().unwrap(), labels)]
        };
        let directory = tempfile::tempdir().unwrap();
        let target = target(directory.path());
        let mut file = EdsFile::new(target.clone());
        for (version, zone) in [("1", "a"), ("2", "b")] {
            assert!(file.write(&labelled(zone), version).unwrap(), "a label that changes is written");
            assert!(!file.write(&labelled(zone), "3").unwrap());
            let response = read(&target.path);
            assert_eq!(response["version_info"], version);
            let host = &response["resources"][0]["endpoints"][0]["lb_endpoints"][0];
            let expected = json!({"zone": zone, "x-gateway-destination-endpoint": "10.0.0.1:8000"});
            assert_eq!(host["metadata"]["filter_metadata"]["envoy.lb"], expected);
        }
    }

    #[test]
    fn only_a_changed_set_is_written_and_no_other_file_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let target = target(directory.path());
        let mut file = EdsFile::new(target.clone());
        assert!(file.write(&endpoints(&[]), "1").unwrap());
        assert!(!file.write(&endpoints(&[]), "2").unwrap());
        assert_eq!(read(&target.path)["version_info"], "1");
        assert!(file.write(&endpoints(&["10.0.0.1:1"]), "3").unwrap());
        assert_eq!(read(&target.path)["version_info"], "3");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_deleted_file_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let target = target(directory.path());
        let mut file = EdsFile::new(target.clone());
        assert!(!file.is_gone(), "it was never written");
        assert!(file.write(&endpoints(&["10.0.0.1:1"]), "1").unwrap());
        assert!(!file.is_gone());
        std::fs::remove_file(&target.path).unwrap();
        assert!(file.is_gone());
        assert!(file.write(&endpoints(&["10.0.0.1:1"]), "2").unwrap());
        assert_eq!(read(&target.path)["version_info"], "2");
    }

    #[test]
    fn the_pool_of_a_cluster_has_a_file_in_the_same_directory() {
        let target = Target { path: "/run/eds/{pool}.json".into(), cluster: "servers of {pool}".to_owned() };
        let of_pool = target.of_pool("team-a/llama");
        assert_eq!(of_pool.path, Path::new("/run/eds/team-a_llama.json"));
        assert_eq!(of_pool.cluster, "servers of team-a/llama");
    }

    #[test]
    fn an_error_names_the_missing_directory() {
        let directory = tempfile::tempdir().unwrap();
        let target = target(&directory.path().join("absent"));
        for error in [target.check(), EdsFile::new(target).write(&endpoints(&[]), "1").map(drop)] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("absent/eds.json") && error.contains("directory must exist"), "{error}");
        }
    }
}
