//! The names of Services, whose existence pools depend on.

use std::collections::BTreeSet;
use std::sync::Arc;

use metrics_agent_support::runtime::Tasks;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::Namespaces;
use super::client::Client;
use super::watch::{DecodeName, Resource, Selector, Update, Watch, WatchMetrics, WatchTarget};

const SERVICES: Resource = Resource { group: "", version: "v1", kind: "Service", name: "services" };

/// Maximum number of Services of one watch. Beyond it, Services count as missing.
const MAX_SERVICES: usize = 65_536;

/// Namespace and name of a Service.
type ServiceName = (String, String);

/// Services whose existence is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedServices {
    /// These.
    Named(BTreeSet<ServiceName>),
    /// All of the namespaces of pools.
    All,
}

/// The Services that exist, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services(Vec<ServiceWatch>);

/// The Services of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ServiceWatch {
    /// `None`: all namespaces.
    namespace: Option<String>,
    /// `None`: all names.
    name: Option<String>,
    /// `None`: they were not listed yet, or may not be read.
    existing: Option<BTreeSet<ServiceName>>,
}

impl Services {
    /// Whether a Service is known not to exist.
    pub fn lack(&self, namespace: &str, name: &str) -> bool {
        let covers = |part: &&ServiceWatch| {
            part.namespace.as_deref().is_none_or(|it| it == namespace)
                && part.name.as_deref().is_none_or(|it| it == name)
        };
        let lists = |part: &ServiceWatch| {
            let existing = part.existing.as_ref()?;
            Some(existing.iter().any(|(own_namespace, own)| own_namespace == namespace && own == name))
        };
        let mut lists = self.0.iter().filter(covers).filter_map(lists).peekable();
        lists.peek().is_some() && lists.all(|exists| !exists)
    }
}

/// The watches of Services, until dropped.
#[derive(Debug)]
pub struct ServiceWatches {
    services: watch::Receiver<Services>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl ServiceWatches {
    pub(super) fn start(
        client: &Client,
        namespaces: &Namespaces,
        watched: WatchedServices,
        tasks: &Tasks,
        metrics: &WatchMetrics,
    ) -> Self {
        let targets = targets(namespaces, watched);
        let parts = targets.iter().map(|(namespace, name)| ServiceWatch {
            namespace: namespace.clone(),
            name: name.clone(),
            existing: None,
        });
        let (sender, services) = watch::channel(Services(parts.collect()));
        let sender = Arc::new(sender);
        let start = |(index, (namespace, name)): (usize, (Option<String>, Option<String>))| {
            let selector = name.map_or(Selector::All, Selector::Name);
            let target = WatchTarget { resource: SERVICES, namespace, selector };
            let sender = Arc::clone(&sender);
            let description = format!("watch of {target}");
            let update = move |update| set_part(&sender, index, update);
            let watch = Watch::new(client.clone(), target, DecodeName, MAX_SERVICES, metrics.clone(), update);
            tasks.spawn(description, watch.run())
        };
        let tasks = targets.into_iter().enumerate().map(start).collect();
        Self { services, _tasks: tasks }
    }

    /// Receives the Services that exist.
    pub fn services(&self) -> watch::Receiver<Services> {
        self.services.clone()
    }
}

fn targets(namespaces: &Namespaces, watched: WatchedServices) -> Vec<(Option<String>, Option<String>)> {
    match (watched, namespaces) {
        (WatchedServices::Named(services), _) => {
            services.into_iter().map(|(namespace, name)| (Some(namespace), Some(name))).collect()
        }
        (WatchedServices::All, Namespaces::All) => vec![(None, None)],
        (WatchedServices::All, Namespaces::Named(namespaces)) => {
            namespaces.iter().cloned().map(|namespace| (Some(namespace), None)).collect()
        }
    }
}

/// Takes over what the watch of this index reports. Without a report of objects the last ones stay.
fn set_part(sender: &watch::Sender<Services>, index: usize, update: Update<ServiceName>) {
    let Update::Objects(objects) = update else { return };
    let existing: BTreeSet<ServiceName> = objects.iter().map(|name| ServiceName::clone(name)).collect();
    sender.send_if_modified(|services| {
        let Some(part) = services.0.get_mut(index) else { return false };
        let is_new = part.existing.as_ref() != Some(&existing);
        part.existing = Some(existing);
        is_new
    });
}

#[cfg(any(feature = "testing", test))]
impl Services {
    /// All Services of all namespaces, which are these.
    pub fn all(existing: &[(&str, &str)]) -> Self {
        let existing = existing.iter().map(|&(namespace, name)| (namespace.to_owned(), name.to_owned()));
        Self(vec![ServiceWatch { namespace: None, name: None, existing: Some(existing.collect()) }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str, name: &str) -> ServiceName {
        (namespace.to_owned(), name.to_owned())
    }

    /// The Services of these watches before the first list.
    fn sender(namespaces: &Namespaces, watched: WatchedServices) -> watch::Sender<Services> {
        let part = |(namespace, name)| ServiceWatch { namespace, name, existing: None };
        watch::Sender::new(Services(targets(namespaces, watched).into_iter().map(part).collect()))
    }

    #[test]
    fn a_service_is_missing_only_when_a_list_that_would_have_it_lacks_it() {
        let named = WatchedServices::Named([name("a", "one"), name("b", "two")].into());
        let sender = sender(&Namespaces::All, named);
        let lack = |namespace: &str, name: &str| sender.borrow().lack(namespace, name);
        assert!(!lack("a", "one"), "it was not listed yet");
        set_part(&sender, 0, Update::Unavailable("forbidden".to_owned()));
        set_part(&sender, 0, Update::Failed("unreachable".to_owned()));
        assert!(!lack("a", "one"), "it is not known");
        set_part(&sender, 0, Update::Objects(vec![]));
        assert!(lack("a", "one"));
        assert!(!lack("b", "two") && !lack("a", "two"), "they are not watched, or not listed");
        set_part(&sender, 0, Update::Objects(vec![Arc::new(name("a", "one"))]));
        assert!(!lack("a", "one"));
    }

    #[test]
    fn of_all_services_those_of_the_namespaces_are_watched() {
        let sender = sender(&Namespaces::Named(vec!["a".to_owned()]), WatchedServices::All);
        set_part(&sender, 0, Update::Objects(vec![Arc::new(name("a", "one"))]));
        let services = sender.borrow();
        assert!(services.lack("a", "two") && !services.lack("a", "one"));
        assert!(!services.lack("b", "two"), "another namespace is not watched");
        drop(services);
        let mut receiver = sender.subscribe();
        receiver.mark_unchanged();
        set_part(&sender, 0, Update::Objects(vec![Arc::new(name("a", "one"))]));
        assert!(!receiver.has_changed().unwrap(), "the same names are no change");
        assert!(Services::all(&[("a", "one")]).lack("b", "one"));
    }
}
