//! The EPP of a pool: its Deployment, its flags and its configuration.

use std::path::{Component, Path, PathBuf};

use serde_json::Value as Json;

use super::read::{items, text};
use crate::sources::kubernetes::ClusterObject;

/// An EPP that is installed for a pool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Epp {
    /// The Deployment's name.
    pub(super) deployment: String,
    /// Names of flags without dashes, with their values if they have one.
    pub(super) flags: Vec<(String, Option<String>)>,
    pub(super) config: Option<ConfigSource>,
}

/// Where an EPP's configuration is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConfigSource {
    /// `--config-text`
    Text(String),
    /// A key of a `ConfigMap` that is mounted.
    ConfigMap { name: String, key: String },
    /// A file that no `ConfigMap` is mounted for.
    File(String),
}

impl Epp {
    /// The EPP that a pool refers to: the Deployment whose pods the Service selects.
    pub(super) fn of_pool(pool: &ClusterObject, services: &[Json], deployments: &[Json]) -> Option<Self> {
        let name = ["/spec/endpointPickerRef/name", "/spec/extensionRef/name"];
        let name = name.iter().map(|pointer| text(&pool.json, pointer)).find(|name| !name.is_empty())?;
        let is_here = |object: &&Json| text(object, "/metadata/namespace") == pool.id.namespace;
        let service = services.iter().filter(is_here).find(|it| text(it, "/metadata/name") == name)?;
        let selector = service.pointer("/spec/selector").and_then(Json::as_object)?;
        let selects = |deployment: &&Json| {
            let labels = deployment.pointer("/spec/template/metadata/labels");
            !selector.is_empty()
                && selector
                    .iter()
                    .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        };
        deployments.iter().filter(is_here).find(selects).and_then(Self::of_deployment)
    }

    fn of_deployment(deployment: &Json) -> Option<Self> {
        let pod = deployment.pointer("/spec/template/spec")?;
        let containers = items(pod, "/containers");
        let has_pool = |container: &&Json| {
            flags(container).iter().any(|(name, _)| name == "pool-name" || name == "endpoint-selector")
        };
        let container = containers.iter().find(has_pool).or(containers.first())?;
        let flags = flags(container);
        let value = |name: &str| flags.iter().find(|(flag, _)| flag == name)?.1.clone();
        let config = value("config-text")
            .map(ConfigSource::Text)
            .or_else(|| Some(config_file(pod, container, &value("config-file")?)));
        Some(Self { deployment: text(deployment, "/metadata/name").to_owned(), flags, config })
    }
}

/// The flags in a container's command and arguments, in the forms `--name=value`, `--name value` and `--name`.
fn flags(container: &Json) -> Vec<(String, Option<String>)> {
    let words = items(container, "/command").iter().chain(items(container, "/args"));
    let words: Vec<&str> = words.filter_map(Json::as_str).collect();
    let mut flags = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, words.next_if(|next| !next.starts_with('-'))),
        };
        flags.push((name.to_owned(), value.map(str::to_owned)));
    }
    flags
}

/// The source of a configuration file: the volume that is mounted at its longest parent.
fn config_file(pod: &Json, container: &Json, file: &str) -> ConfigSource {
    let path = normalized(file);
    let mounts = items(container, "/volumeMounts").iter();
    let mounted = mounts.filter_map(|mount| {
        let below = path.strip_prefix(normalized(text(mount, "/mountPath"))).ok()?;
        Some((mount, below.to_string_lossy().into_owned()))
    });
    let closest = mounted.min_by_key(|(_, below)| below.len());
    let source = closest.and_then(|(mount, below)| {
        let name = text(mount, "/name");
        let volume = items(pod, "/volumes").iter().find(|volume| text(volume, "/name") == name)?;
        // With a subPath, the mount is the file itself.
        let file = if below.is_empty() { text(mount, "/subPath").to_owned() } else { below };
        let of_path = |item: &&Json| text(item, "/path") == file;
        let key =
            items(volume, "/configMap/items").iter().find(of_path).map(|item| text(item, "/key").to_owned());
        let name = Some(text(volume, "/configMap/name")).filter(|name| !name.is_empty())?;
        Some(ConfigSource::ConfigMap { name: name.to_owned(), key: key.unwrap_or(file) })
    });
    source.unwrap_or_else(|| ConfigSource::File(file.to_owned()))
}

/// A path without `.` and repeated slashes.
fn normalized(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| *part != Component::CurDir).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sources::kubernetes::ObjectId;

    fn pool(spec: &Json) -> ClusterObject {
        let id = ObjectId {
            api_version: "inference.networking.k8s.io/v1".to_owned(),
            kind: "InferencePool".to_owned(),
            namespace: "n".to_owned(),
            name: "llama".to_owned(),
        };
        let (uid, resource_version) = (String::new(), String::new());
        ClusterObject { id, uid, generation: None, resource_version, json: json!({"spec": spec}) }
    }

    fn service(namespace: &str) -> Json {
        json!({"metadata": {"name": "llama-epp", "namespace": namespace}, "spec": {"selector": {"app": "epp"}}})
    }

    fn deployment(name: &str, label: &str, args: &Json) -> Json {
        json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {"template": {
                "metadata": {"labels": {"app": label, "x": "y"}},
                "spec": {
                    "containers": [{"name": "proxy", "args": ["--other"]}, {
                        "name": "epp",
                        "args": args,
                        "volumeMounts": [{"name": "secrets", "mountPath": "/"}, {"name": "plugins", "mountPath": "/config/"}],
                    }],
                    "volumes": [
                        {"name": "secrets", "secret": {"secretName": "s"}},
                        {"name": "plugins", "configMap": {"name": "llama-epp", "items": [{"key": "k", "path": "b.yaml"}]}},
                    ],
                },
            }},
        })
    }

    fn epp(args: &Json) -> Epp {
        let pool = pool(&json!({"endpointPickerRef": {"name": "llama-epp"}}));
        let deployments = [deployment("x", "other", args), deployment("y", "epp", args)];
        Epp::of_pool(&pool, &[service("m"), service("n")], &deployments).unwrap()
    }

    #[test]
    fn the_deployment_is_found_through_the_service_and_its_flags_are_read() {
        let epp = epp(&json!(["--pool-name", "llama", "-v=3", "--secure-serving=false", "--tracing"]));
        assert_eq!(epp.deployment, "y");
        let flag = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        let expected = [
            flag("pool-name", Some("llama")),
            flag("v", Some("3")),
            flag("secure-serving", Some("false")),
            flag("tracing", None),
        ];
        assert_eq!((&epp.flags[..], epp.config), (&expected[..], None));
    }

    #[test]
    fn the_configuration_is_the_text_or_the_key_that_is_mounted_at_the_file() {
        let of = |key: &str| {
            let (name, key) = ("llama-epp".to_owned(), key.to_owned());
            Some(ConfigSource::ConfigMap { name, key })
        };
        for (flag, expected) in [
            ("--config-file=/config/a.yaml", of("a.yaml")),
            ("--config-file=/config//./b.yaml", of("k")),
            ("--config-file=/etc/a.yaml", Some(ConfigSource::File("/etc/a.yaml".to_owned()))),
            ("--config-text=kind: x", Some(ConfigSource::Text("kind: x".to_owned()))),
        ] {
            assert_eq!(epp(&json!(["--pool-name=llama", flag])).config, expected, "{flag}");
        }
    }

    #[test]
    fn a_pool_without_a_reference_or_with_one_to_nothing_has_no_epp() {
        let deployments = [deployment("y", "epp", &json!([]))];
        for (spec, services) in [
            (json!({}), vec![service("n")]),
            (json!({"endpointPickerRef": {"name": "llama-epp"}}), vec![service("m")]),
            (
                json!({"endpointPickerRef": {"name": "llama-epp"}}),
                vec![json!({"metadata": {"name": "llama-epp", "namespace": "n"}})],
            ),
        ] {
            assert_eq!(Epp::of_pool(&pool(&spec), &services, &deployments), None);
        }
        let old = pool(&json!({"extensionRef": {"name": "llama-epp"}}));
        assert!(Epp::of_pool(&old, &[service("n")], &deployments).is_some());
    }
}
