//! The EPP's file-discovery format.
//!
//! ```yaml
//! endpoints:
//!   - name: a            # required, unique with its namespace
//!     namespace: default # the default
//!     address: 10.0.0.1  # an IP address or a host name; the EPP allows IPv4 only
//!     port: "8000"       # or a number; the default is the pool's, which the EPP does not have
//!     labels: {llm-d.ai/engine-type: vllm}
//! ```

use core::fmt;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
use metrics_agent_support::files::{self, yaml_problem};
use metrics_agent_support::runtime::ResultCounter;
use serde::Deserialize;
use tokio::sync::watch;

use super::fields::{Address, Name, Namespace, PortNumber, check_labels};
use super::{Declared, DeclaredSet, NamedServer, NoEndpoints, combine};
use crate::manifests::Problem;

/// The port of an endpoint whose entry has none: its pool has it.
pub const PORT_OF_POOL: u16 = 0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with the key endpoints")]
struct EndpointsFile {
    endpoints: Vec<FileEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with name, address and port")]
struct FileEntry {
    name: Name,
    #[serde(default)]
    namespace: Namespace,
    address: Address,
    port: Option<PortNumber>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Reads a file in YAML or JSON. The whole file is refused if one entry is invalid.
pub fn parse(bytes: &[u8]) -> Result<Declared, FileError> {
    let text =
        core::str::from_utf8(bytes).map_err(|error| FileError::Malformed(format!("not UTF-8: {error}")))?;
    // As in YAML 1.2, a name such as `no` or `n` is a string, not a boolean.
    let options = serde_saphyr::options! { strict_booleans: true };
    let document: serde_json::Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| FileError::Malformed(yaml_problem(&error)))?;
    if document.is_null() {
        return Err(FileError::Malformed("is empty; a set without endpoints is endpoints: []".to_owned()));
    }
    let file: EndpointsFile = serde_path_to_error::deserialize(document).map_err(|error| {
        FileError::Refused { path: error.path().to_string(), problem: error.inner().to_string() }
    })?;
    for (index, entry) in file.endpoints.iter().enumerate() {
        let refused = |problem| FileError::Refused { path: format!("endpoints[{index}].labels"), problem };
        check_labels(&entry.labels).map_err(refused)?;
    }
    let mut declared = Declared::default();
    for FileEntry { name, namespace, address, port, labels } in file.endpoints {
        let (name, labels) = (format!("{}/{}", namespace.0, name.0), labels.into_iter().collect());
        let port = port.map(|port| port.0);
        match address {
            Address::Ip(ip) => {
                let address = SocketAddr::new(ip, port.map_or(PORT_OF_POOL, NonZeroU16::get));
                declared.endpoints.push(Endpoint::new(name, address, labels));
            }
            Address::Host(host) => declared.named.push(NamedServer { name, host, port, labels }),
        }
    }
    Ok(declared)
}

/// Why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    /// Neither YAML nor JSON.
    Malformed(String),
    /// An entry is invalid.
    Refused {
        /// Entry and field, such as `endpoints[2].port`, counted from 0.
        path: String,
        /// The value, and what is allowed.
        problem: String,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(problem) => f.write_str(problem),
            // The whole file.
            Self::Refused { path, problem } if path == "." => f.write_str(problem),
            Self::Refused { path, problem } => write!(f, "{path}: {problem}"),
        }
    }
}

impl core::error::Error for FileError {}

/// The endpoints file that is watched.
#[derive(Clone, Debug)]
pub struct WatchedFile {
    /// Its path.
    pub path: Arc<Path>,
    /// Why its newest version is refused.
    pub problem: Option<Problem>,
}

/// Reads the endpoints file again whenever it changes.
pub(super) struct FileWatcher {
    pub(super) path: PathBuf,
    /// Servers of the flags, which are part of every set.
    pub(super) fixed: Declared,
    pub(super) max_endpoints: usize,
    pub(super) sets: watch::Sender<DeclaredSet>,
    pub(super) watched: watch::Sender<Option<WatchedFile>>,
    pub(super) reads: ResultCounter,
}

/// The file's bytes, or why there are none, as text so that two polls can be compared.
type Content = Result<Vec<u8>, String>;

impl FileWatcher {
    pub(super) async fn run(self) {
        files::poll(|| read(self.path.clone()), |content| self.update(content)).await;
    }

    fn update(&self, content: &Content) {
        let set = content.clone().and_then(|bytes| {
            let found = parse(&bytes).map_err(|error| error.to_string())?;
            combine(&self.fixed, &found, self.max_endpoints)
        });
        let set = set.map_err(|text| Problem::of_file(&self.path, text));
        self.reads.count(set.is_ok());
        let problem = set.as_ref().err().cloned();
        self.watched.send_replace(Some(WatchedFile { path: self.path.as_path().into(), problem }));
        match set {
            Ok(declared) => {
                let (endpoints, host_names) = (declared.endpoints.len(), declared.named.len());
                tracing::info!(file = %self.path.display(), endpoints, host_names, "endpoints file read");
                self.sets.send_if_modified(|set| {
                    let changed = set.as_ref() != Ok(&declared);
                    *set = Ok(declared);
                    changed
                });
            }
            Err(error) => {
                let is_first = self.sets.borrow().is_err();
                let effect = if is_first { "there are none yet" } else { "the last valid endpoints stay" };
                tracing::error!(%error, "the endpoints file is refused; {effect}");
                if is_first {
                    let _ = self.sets.send_replace(Err(NoEndpoints::Refused(error.to_string())));
                }
            }
        }
    }
}

async fn read(path: PathBuf) -> Content {
    let reading = tokio::task::spawn_blocking(move || files::read(&path).map_err(|error| error.to_string()));
    reading.await.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn addresses(text: &str) -> Vec<String> {
        parse(text.as_bytes())
            .unwrap()
            .endpoints
            .iter()
            .map(|e| format!("{} {}", e.name(), e.printed_address()))
            .collect()
    }

    fn refusal(entry: &str) -> String {
        let text = format!("endpoints:\n- {{name: good, address: 10.0.0.1, port: 1}}\n- {entry}\n");
        parse(text.as_bytes()).expect_err(entry).to_string()
    }

    #[test]
    fn yaml_and_json_are_equivalent() {
        let yaml = "endpoints:\n- name: a\n  address: 10.0.0.1\n  port: \"8000\"\n- name: b\n  namespace: n\n  address: 2001:db8::1\n  port: 8001\n";
        let json = r#"{"endpoints": [{"name": "a", "address": "10.0.0.1", "port": "8000"},
            {"name": "b", "namespace": "n", "address": "[2001:db8::1]", "port": 8001}]}"#;
        let want = ["default/a 10.0.0.1:8000", "n/b [2001:db8::1]:8001"];
        assert_eq!(addresses(yaml), want);
        assert_eq!(addresses(json), want);
    }

    #[test]
    fn labels_reach_the_endpoint() {
        let text =
            "endpoints: [{name: a, address: 10.0.0.1, port: 1, labels: {llm-d.ai/engine-type: sglang}}]";
        assert_eq!(
            parse(text.as_bytes()).unwrap().endpoints[0].label("llm-d.ai/engine-type"),
            Some("sglang")
        );
    }

    #[test]
    fn an_address_may_be_a_host_name() {
        let text = "endpoints: [{name: a, address: VLLM-1.example, port: 8000, labels: {zone: b}}]";
        let declared = parse(text.as_bytes()).unwrap();
        let server = NamedServer {
            name: "default/a".to_owned(),
            host: "vllm-1.example".parse().unwrap(),
            port: NonZeroU16::new(8000),
            labels: vec![("zone".to_owned(), "b".to_owned())],
        };
        assert_eq!(declared, Declared { endpoints: vec![], named: vec![server] });
    }

    #[test]
    fn a_set_may_be_empty() {
        assert_eq!(addresses("endpoints: []"), Vec::<String>::new());
    }

    #[test]
    fn a_refusal_has_the_entry_field_value_and_what_is_allowed() {
        let labelled =
            |labels: &str| format!("{{name: b, address: 10.0.0.2, port: 1, labels: {{{labels}}}}}");
        let many_labels = labelled(&(0..65).map(|n| format!("l{n}: x")).collect::<Vec<_>>().join(", "));
        let long_key = labelled(&format!("{}: a", "k".repeat(318)));
        let long = labelled(&format!("a: {}", "x".repeat(1025)));
        for (entry, parts) in [
            (
                "{name: b, address: 10.0.0.300, port: 1}",
                ["endpoints[1].address", "10.0.0.300", "neither an IP address nor a host name"],
            ),
            ("{name: b, address: 10.0.0.2, port: 0}", ["endpoints[1].port", "0", "1 to 65535"]),
            ("{name: b, address: 10.0.0.2, port: 65536}", ["endpoints[1].port", "65536", "1 to 65535"]),
            ("{name: b, address: 10.0.0.2, port: \"x\"}", ["endpoints[1].port", "x", "1 to 65535"]),
            ("{name: b, address: 10.0.0.2, port: -1}", ["endpoints[1].port", "-1", "1 to 65535"]),
            ("{name: b, address: 10.0.0.2, port: 1.5}", ["endpoints[1].port", "1.5", "1 to 65535"]),
            ("{name: a/b, address: 10.0.0.2, port: 1}", ["endpoints[1].name", "a/b", "without /"]),
            ("{name: \"\", address: 10.0.0.2, port: 1}", ["endpoints[1].name", "\"\"", "1 to 253"]),
            (
                "{name: b, namespace: \"\", address: 10.0.0.2, port: 1}",
                ["endpoints[1].namespace", "\"\"", "1 to"],
            ),
            (
                "{name: b, address: 10.0.0.2, port: 1, labels: {x: 1}}",
                ["endpoints[1].labels.x", "1", "a string"],
            ),
            (&many_labels, ["endpoints[1].labels", "65 labels", "at most 64"]),
            (&long, ["endpoints[1].labels", "\"a\" has 1025 bytes", "0 to 1024 bytes"]),
            (&long_key, ["endpoints[1].labels", "has 318 bytes", "1 to 317 bytes"]),
            ("{name: b, address: 10.0.0.2, port: 1, prot: 2}", ["endpoints[1].prot", "prot", "`labels`"]),
            ("{name: b, port: 1}", ["endpoints[1]", "missing", "address"]),
        ] {
            let refusal = refusal(entry);
            for part in parts {
                assert!(refusal.contains(part), "{entry}: {refusal:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn a_refusal_of_the_whole_file_has_no_path() {
        for (text, expected) in [
            ("", "is empty; a set without endpoints is endpoints: []"),
            ("# nothing yet", "is empty; a set without endpoints is endpoints: []"),
            ("null", "is empty; a set without endpoints is endpoints: []"),
            ("[]", "invalid length 0, expected a map with the key endpoints"),
            ("endpoints", "invalid type: string \"endpoints\", expected a map with the key endpoints"),
            (
                "endpoints: [null]",
                "endpoints[0]: invalid type: null, expected a map with name, address and port",
            ),
        ] {
            let refusal = parse(text.as_bytes()).unwrap_err();
            assert_eq!(refusal.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn hostile_files_are_refused() {
        let mut bomb = "a0: &a0 [x]\n".to_owned();
        for i in 1..30 {
            let nine = vec![format!("*a{}", i - 1); 9].join(",");
            writeln!(bomb, "a{i}: &a{i} [{nine}]").unwrap();
        }
        let deep = "[".repeat(100_000);
        let large = format!("endpoints: [{}]", "{},".repeat(250_000));
        for text in [
            "",
            "endpoints",
            "endpoints: {}",
            "[]",
            "\0",
            "endpoints: []\nendpoints: []",
            &bomb,
            &deep,
            &large,
        ] {
            let error = parse(text.as_bytes()).expect_err("hostile").to_string();
            assert!(!error.is_empty() && error.len() < 4096, "{} bytes", error.len());
        }
        assert!(parse(b"endpoints: [\xff]").is_err());
    }
}
