//! Makes pools of the objects of a cluster, each object by itself.
//!
//! Unlike files, whose manifests are valid together or not at all, an object that is refused takes nothing
//! else with it: it is left out with its reasons, and its last valid version stays in force. Of two objects
//! that contradict each other, the younger is refused. [`ClusterCatalogue`] does this without I/O;
//! [`PlanWatch::of_cluster`](super::watch::PlanWatch::of_cluster) follows the objects.

mod follow;
mod manifest;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use manifest::Manifest;
use metrics_agent_sources::kubernetes::{ClusterObject, ClusterObjects};
use metrics_agent_sources::manifests::{File, Problem, Problems, Source};
use serde_json::Value as Json;

use super::manifests::Scope;
use super::manifests::document::Documents;
use super::plan::{Combined, Plan};
use super::{Options, Reasons, Refusal};

/// How the objects of a cluster are read.
#[derive(Clone, Debug)]
pub struct CatalogueSettings {
    /// The namespace of pools that are named without one.
    pub namespace: String,
    /// The only pool to serve, `name` or `namespace/name`; `None`: all of them.
    pub pool: Option<String>,
    /// Options for reading manifests.
    pub options: Options,
    /// Whether the flags set up TLS to model servers.
    pub has_tls: bool,
}

impl CatalogueSettings {
    /// The scope of manifests in the agent's own namespace.
    fn scope(&self) -> Scope {
        Scope::Cluster { namespace: self.namespace.clone() }
    }

    /// Namespace and name of the only pool.
    fn only_pool(&self) -> Option<(&str, &str)> {
        let pool = self.pool.as_deref()?;
        Some(pool.split_once('/').unwrap_or((&self.namespace, pool)))
    }
}

/// Keeps the last valid version of every manifest, and combines them.
#[derive(Debug)]
pub struct ClusterCatalogue {
    settings: CatalogueSettings,
    manifests: BTreeMap<Source, ManifestState>,
    files: Option<ManifestState>,
}

#[derive(Debug)]
struct ManifestState {
    identity: ObjectVersion,
    /// The last valid version, of the same object.
    valid: Option<Documents>,
    /// Problems of the newest version.
    problems: Vec<Problem>,
}

/// An object and its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ObjectVersion {
    uid: Option<String>,
    generation: Option<i64>,
    /// Annotations, which change without a new generation.
    annotations: Vec<(String, Json)>,
    /// `None` for kinds with a generation, because it changes with the object's status too.
    resource_version: Option<String>,
}

/// The annotation with all that `kubectl apply` was given: another copy of the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl ObjectVersion {
    fn of(object: &ClusterObject) -> Self {
        let without_generation = object.generation.is_none();
        let annotations = object.json.pointer("/metadata/annotations").and_then(Json::as_object);
        let annotations = annotations.into_iter().flatten();
        let owned = |(name, value): (&String, &Json)| (name.clone(), value.clone());
        Self {
            uid: Some(object.uid.clone()),
            generation: object.generation,
            annotations: annotations.filter(|(name, _)| *name != LAST_APPLIED).map(owned).collect(),
            resource_version: without_generation.then(|| object.resource_version.clone()),
        }
    }
}

impl ClusterCatalogue {
    /// No manifests.
    pub fn new(settings: CatalogueSettings) -> Self {
        Self { settings, manifests: BTreeMap::new(), files: None }
    }

    /// Replaces the objects. Returns whether a manifest has changed, come or gone.
    pub fn set_objects(&mut self, objects: &ClusterObjects) -> bool {
        let mut present = HashSet::new();
        let mut is_changed = false;
        for object in objects.0.iter().filter(|object| follow::is_selected(object, &self.settings)) {
            let identity = ObjectVersion::of(object);
            for manifest in Manifest::of_object(object) {
                present.insert(manifest.source.clone());
                let earlier = self.manifests.remove(&manifest.source);
                let is_read = earlier.as_ref().is_some_and(|earlier| earlier.identity == identity);
                let state = match earlier {
                    Some(earlier) if is_read => earlier,
                    earlier => {
                        is_changed = true;
                        ManifestState::new(earlier, identity.clone(), manifest.read(&self.settings))
                    }
                };
                self.manifests.insert(manifest.source, state);
            }
        }
        let before = self.manifests.len();
        self.manifests.retain(|source, _| present.contains(source));
        is_changed || self.manifests.len() != before
    }

    /// Replaces the manifests of the files at `path`.
    pub fn set_files(&mut self, path: &Path, files: &Result<Vec<File>, Problems>) {
        let documents = Manifest::of_files(Source::File(path.into()), files).read(&self.settings);
        self.files = Some(ManifestState::new(self.files.take(), ObjectVersion::default(), documents));
    }

    /// The plan of all manifests in force, and the refused manifests.
    pub fn plan(&self) -> (Plan, Vec<Refusal>) {
        let CatalogueSettings { options, .. } = &self.settings;
        let mut documents = Documents::default();
        for state in self.states() {
            documents.append(state.valid.clone().unwrap_or_default());
        }
        follow::restrict(&mut documents, &self.settings);
        documents.sort_by_age();
        follow::limit(&mut documents);
        let Combined { plan, refused, without_effect } =
            Plan::of_cluster(documents, &self.settings.scope(), options);
        (plan, self.refusals(&refused, &without_effect))
    }

    /// Files first: they have no creation time, and so come before objects.
    fn states(&self) -> impl Iterator<Item = &ManifestState> {
        self.files.iter().chain(self.manifests.values())
    }

    fn refusals(&self, refused: &[Problem], without_effect: &[Problem]) -> Vec<Refusal> {
        let not_in_force: HashSet<&Source> =
            refused.iter().chain(without_effect).map(|problem| &problem.origin.source).collect();
        let earlier_in_force: HashMap<&Source, bool> = self
            .states()
            .flat_map(|state| state.problems.iter().map(move |problem| (&problem.origin.source, state)))
            .map(|(source, state)| (source, state.valid.is_some() && !not_in_force.contains(source)))
            .collect();
        let mut reasons = Reasons::default();
        self.states().for_each(|state| reasons.add(&state.problems));
        reasons.add(refused);
        reasons.add(without_effect);
        let refusal = |(source, reasons)| {
            let identity = self.manifests.get(&source).map(|state| &state.identity);
            Refusal {
                uid: identity.and_then(|identity| identity.uid.clone()),
                generation: identity.and_then(|identity| identity.generation),
                earlier_in_force: earlier_in_force.get(&source).copied().unwrap_or(false),
                source,
                reasons,
            }
        };
        reasons.into_bounded().map(refusal).collect()
    }
}

impl ManifestState {
    /// The state after reading a version. An object with another uid is another object, so the last valid
    /// version of its predecessor is dropped.
    fn new(earlier: Option<Self>, identity: ObjectVersion, mut documents: Documents) -> Self {
        let problems = core::mem::take(&mut documents.problems);
        let valid = if problems.is_empty() {
            Some(documents)
        } else {
            earlier.filter(|earlier| earlier.identity.uid == identity.uid).and_then(|earlier| earlier.valid)
        };
        Self { identity, valid, problems }
    }
}
