//! Objects that a watch reads, and its URLs.

use core::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// A kind of objects, as the API server's URLs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The group; empty for the kinds of Kubernetes' core.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    /// The plural's name in URLs and, with the group, in metrics and messages:
    /// `inferencepools.inference.networking.k8s.io`.
    pub name: &'static str,
}

impl Resource {
    /// Group and version, as in an object's `apiVersion`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether its kind has to be installed, as a `CustomResourceDefinition`.
    pub(crate) fn is_custom(&self) -> bool {
        !self.group.is_empty()
    }

    fn plural(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(plural, _)| plural)
    }
}

/// The objects that a watch reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchTarget {
    pub resource: Resource,
    /// The namespace; `None`: all.
    pub namespace: Option<String>,
    pub selector: Selector,
}

/// Which objects of a namespace are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// All.
    All,
    /// The object of this name.
    Name(String),
    /// The objects with all these labels, written `key=value` with commas.
    Labels(String),
}

impl WatchTarget {
    /// The URL of one page of the list.
    pub(super) fn list_path(&self, limit: u32, after: Option<&str>) -> String {
        let mut path = self.path();
        push(&mut path, "limit", &limit.to_string());
        if let Some(token) = after {
            push(&mut path, "continue", token);
        }
        path
    }

    /// The URL of the changes since a version, for this number of seconds.
    pub(super) fn watch_path(&self, version: &str, seconds: u64) -> String {
        let mut path = self.path();
        push(&mut path, "watch", "true");
        push(&mut path, "allowWatchBookmarks", "true");
        push(&mut path, "resourceVersion", version);
        push(&mut path, "timeoutSeconds", &seconds.to_string());
        path
    }

    fn path(&self) -> String {
        let Resource { group, version, .. } = self.resource;
        let mut path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if let Some(namespace) = &self.namespace {
            path.push_str("/namespaces/");
            path.extend(utf8_percent_encode(namespace, NON_ALPHANUMERIC));
        }
        path.push('/');
        path.push_str(self.resource.plural());
        path.push('?');
        match &self.selector {
            Selector::All => {}
            Selector::Name(name) => push(&mut path, "fieldSelector", &format!("metadata.name={name}")),
            Selector::Labels(labels) => push(&mut path, "labelSelector", labels),
        }
        path
    }
}

fn push(path: &mut String, key: &str, value: &str) {
    if !path.ends_with('?') {
        path.push('&');
    }
    path.push_str(key);
    path.push('=');
    path.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
}

/// Text for messages: `pods in "team-a" with "app=llama"`.
impl fmt::Display for WatchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource.name)?;
        if let Some(namespace) = &self.namespace {
            write!(f, " in {namespace:?}")?;
        }
        match &self.selector {
            Selector::All => Ok(()),
            Selector::Name(name) => write!(f, " named {name:?}"),
            Selector::Labels(labels) => write!(f, " with {labels:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: Resource = Resource {
        group: "inference.networking.k8s.io",
        version: "v1",
        kind: "InferencePool",
        name: "inferencepools.inference.networking.k8s.io",
    };
    const PODS: Resource = Resource { group: "", version: "v1", kind: "Pod", name: "pods" };

    fn target(resource: Resource, namespace: Option<&str>, selector: Selector) -> WatchTarget {
        WatchTarget { resource, namespace: namespace.map(str::to_owned), selector }
    }

    #[test]
    fn urls_name_the_kind_the_namespace_and_the_selector() {
        let all = target(POOLS, None, Selector::All);
        assert_eq!(all.list_path(500, None), "/apis/inference.networking.k8s.io/v1/inferencepools?limit=500");
        assert_eq!(all.to_string(), "inferencepools.inference.networking.k8s.io");
        let labels = Selector::Labels("app=llama,tier=a/b".to_owned());
        let pods = target(PODS, Some("team-a"), labels);
        assert_eq!(
            pods.list_path(5, Some("x=&")),
            "/api/v1/namespaces/team%2Da/pods?labelSelector=app%3Dllama%2Ctier%3Da%2Fb&limit=5&continue=x%3D%26"
        );
        let named = target(PODS, Some("a"), Selector::Name("b".to_owned()));
        assert_eq!(
            named.watch_path("7", 25),
            "/api/v1/namespaces/a/pods?fieldSelector=metadata%2Ename%3Db&watch=true&allowWatchBookmarks=true\
             &resourceVersion=7&timeoutSeconds=25"
        );
        assert_eq!(pods.to_string(), r#"pods in "team-a" with "app=llama,tier=a/b""#);
        assert_eq!(
            (POOLS.api_version().as_str(), PODS.api_version().as_str()),
            ("inference.networking.k8s.io/v1", "v1")
        );
    }

    #[test]
    fn a_selector_cannot_leave_its_parameter() {
        let path =
            target(PODS, Some("../x"), Selector::Labels("a=b&watch=true#".to_owned())).list_path(1, None);
        assert_eq!(path, "/api/v1/namespaces/%2E%2E%2Fx/pods?labelSelector=a%3Db%26watch%3Dtrue%23&limit=1");
    }
}
