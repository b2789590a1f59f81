//! Data sources other than the servers' metrics, DCGM exporters and lists of models: each is read by a task
//! of its own, for all endpoints that share it.

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use endpoint_picker::pool::reading::ServedModel;
use metrics_agent_catalogue::plan::members::Member;
use metrics_agent_catalogue::scraping::{DataSource, ScrapeSettings, SourceKind};
use metrics_agent_scrape::client::Client;
use metrics_agent_scrape::download::BodyReader;
use metrics_agent_scrape::error::{Reason, ScrapeError, UnreadResponse};
use metrics_agent_scrape::exposition::GpuReader;
use metrics_agent_scrape::model_list::ModelListReader;
use metrics_agent_support::client::credentials::ClientCredentials;
use metrics_agent_support::runtime::{Clock, Tasks};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::ScrapeMetrics;
use super::slot::Slot;
use super::task::pauses;
use super::turn::{from_now_on, nth_turn};

/// Age from which a value is dropped, or three intervals if these are longer.
const EXPIRY: Duration = Duration::from_secs(10);

/// The tasks of all sources.
pub(super) struct DataSources {
    clock: Clock,
    credentials: Arc<ClientCredentials>,
    tasks: Tasks,
    metrics: ScrapeMetrics,
    running: HashMap<ScrapedSource, SourceTask>,
    started: u32,
}

/// A source, and how it is scraped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScrapedSource {
    kind: SourceKind,
    address: SocketAddr,
    settings: Arc<ScrapeSettings>,
}

/// Pod and slot of an endpoint.
type Target = (Arc<str>, Arc<Slot>);

struct SourceTask {
    targets: Vec<Target>,
    /// Held while the task writes values; false: it no longer does. Aborting alone would not stop a task in
    /// the middle of a write.
    writes: Arc<Mutex<bool>>,
    _task: AbortOnDropHandle<()>,
}

/// The endpoints of each source, while they are collected.
#[derive(Default)]
pub(super) struct BySource(HashMap<ScrapedSource, Vec<Target>>);

impl BySource {
    /// Adds an endpoint, whose values go into this slot.
    pub(super) fn add(&mut self, source: &DataSource, member: &Member, slot: &Arc<Slot>) {
        let (kind, address, settings) =
            (source.kind, member.address_of(source), Arc::clone(&source.settings));
        let targets = self.0.entry(ScrapedSource { kind, address, settings }).or_default();
        targets.push((member.pod_name().into(), Arc::clone(slot)));
    }
}

impl DataSources {
    pub(super) fn new(
        clock: Clock,
        credentials: Arc<ClientCredentials>,
        tasks: Tasks,
        metrics: ScrapeMetrics,
    ) -> Self {
        Self { clock, credentials, tasks, metrics, running: HashMap::new(), started: 0 }
    }

    /// Scrapes these sources from now on. Endpoints that have one no longer lose its value.
    pub(super) fn set(&mut self, BySource(sources): BySource) {
        let mut before = core::mem::take(&mut self.running);
        let read: HashSet<_> = sources
            .iter()
            .flat_map(|(source, targets)| targets.iter().map(|(_, slot)| (source.kind, Arc::as_ptr(slot))))
            .collect();
        let serves = |source: &ScrapedSource, task: &SourceTask| {
            let targets = sources.get(source);
            targets.is_some_and(|targets| task.targets.iter().map(key).eq(targets.iter().map(key)))
        };
        for (_, task) in before.iter().filter(|(source, task)| !serves(source, task)) {
            *task.writes.lock() = false;
        }
        for (source, task) in &before {
            for (_, slot) in
                task.targets.iter().filter(|(_, slot)| !read.contains(&(source.kind, Arc::as_ptr(slot))))
            {
                match source.kind {
                    SourceKind::Gpu => GpuReader::write(slot, None),
                    SourceKind::Models => ModelListReader::write(slot, None),
                }
            }
        }
        before.retain(|source, task| serves(source, task));
        for (source, targets) in sources {
            let task = match before.remove(&source) {
                Some(task) => task,
                None => self.start(&source, targets),
            };
            self.running.insert(source, task);
        }
    }

    fn start(&mut self, source: &ScrapedSource, targets: Vec<Target>) -> SourceTask {
        let pods = targets.iter().map(|(pod, _)| Arc::clone(pod));
        let name = format!("scraping of {} at {}", source.kind.as_str(), source.address);
        let slots = targets.iter().map(|(_, slot)| Arc::clone(slot)).collect();
        let writes = Arc::new(Mutex::new(true));
        let slots = SourceSlots { slots, writes: Arc::clone(&writes) };
        let task = match source.kind {
            SourceKind::Gpu => self.spawn(name, source, slots, GpuReader::new(pods)),
            SourceKind::Models => self.spawn(name, source, slots, ModelListReader::default()),
        };
        SourceTask { targets, writes, _task: task }
    }

    fn spawn<R: EndpointReader>(
        &mut self,
        name: String,
        source: &ScrapedSource,
        SourceSlots { slots, writes }: SourceSlots,
        reader: R,
    ) -> AbortOnDropHandle<()> {
        let ScrapedSource { kind, address, settings } = source.clone();
        let (interval, now) = (settings.interval, self.clock.now());
        let scrape = SourceScrape {
            kind,
            address,
            settings,
            slots: slots.into_iter().map(|slot| (slot, now)).collect(),
            writes,
            clock: self.clock,
            metrics: self.metrics.clone(),
            client: Client::new(Arc::clone(&self.credentials)),
            reader,
            is_failing: false,
        };
        let first = from_now_on(now, nth_turn(self.started, interval), interval);
        self.started = self.started.wrapping_add(1);
        self.tasks.spawn(name, scrape.run(first))
    }
}

/// The slots that a task writes to, and whether it still does.
struct SourceSlots {
    slots: Vec<Arc<Slot>>,
    writes: Arc<Mutex<bool>>,
}

/// Pod and identity of an endpoint's slot.
fn key((pod, slot): &Target) -> (&str, *const Slot) {
    (pod, Arc::as_ptr(slot))
}

/// Reads the values of a source's endpoints.
trait EndpointReader: BodyReader + Send + 'static {
    type Value;

    /// Ends the body, and returns the value of each of the endpoints in their order; `None`: the body has
    /// none.
    fn values(&mut self, endpoints: usize) -> Vec<Option<Self::Value>>;

    /// Writes an endpoint's value.
    fn write(slot: &Slot, value: Option<Self::Value>);
}

impl EndpointReader for GpuReader {
    type Value = f64;

    fn values(&mut self, _: usize) -> Vec<Option<f64>> {
        self.finish()
    }

    fn write(slot: &Slot, value: Option<f64>) {
        slot.set_gpu_utilization(value);
    }
}

impl EndpointReader for ModelListReader {
    type Value = Arc<[ServedModel]>;

    /// All endpoints of a server have its list.
    fn values(&mut self, endpoints: usize) -> Vec<Option<Arc<[ServedModel]>>> {
        vec![self.finish(); endpoints]
    }

    fn write(slot: &Slot, value: Option<Arc<[ServedModel]>>) {
        slot.set_models(value);
    }
}

/// Scrapes one source until dropped.
struct SourceScrape<R> {
    kind: SourceKind,
    address: SocketAddr,
    settings: Arc<ScrapeSettings>,
    /// In the order of the reader's endpoints, each with the time of its last value, or of the task's start.
    slots: Vec<(Arc<Slot>, Duration)>,
    writes: Arc<Mutex<bool>>,
    clock: Clock,
    metrics: ScrapeMetrics,
    client: Client,
    reader: R,
    is_failing: bool,
}

impl<R: EndpointReader> SourceScrape<R> {
    /// Scrapes at time `first`, then once each interval. Ticks during a slow scrape or a pause are skipped.
    async fn run(mut self, first: Duration) {
        let mut ticks = interval_at(self.clock.at(first), self.settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut after_costly = pauses(self.settings.interval);
        loop {
            ticks.tick().await;
            let outcome = self.scrape().await;
            self.drop_old_values();
            match outcome {
                Ok(()) => self.is_failing = false,
                Err(error) => {
                    self.report(&error);
                    if error.reason().is_costly() {
                        sleep(after_costly.next().unwrap_or_default()).await;
                        continue;
                    }
                }
            }
            after_costly = pauses(self.settings.interval);
        }
    }

    /// As in the EPP, an endpoint without a value keeps its last one, and this is an error.
    async fn scrape(&mut self) -> Result<(), ScrapeError> {
        let limit = self.settings.timeout;
        let get = self.client.get(self.address, &self.settings, &mut self.reader);
        timeout(limit, get).await.unwrap_or(Err(ScrapeError::Timeout(limit)))?;
        let now = self.clock.now();
        let mut is_complete = true;
        let values = self.reader.values(self.slots.len());
        let writes = self.writes.lock();
        if !*writes {
            return Ok(());
        }
        for ((slot, updated), value) in self.slots.iter_mut().zip(values) {
            if value.is_some() {
                *updated = now;
                R::write(slot, value);
            } else {
                is_complete = false;
            }
        }
        if is_complete { Ok(()) } else { Err(ScrapeError::NoMetrics(UnreadResponse::default())) }
    }

    /// Plugins would take an old value for a new one, because only readings as a whole have an age.
    fn drop_old_values(&self) {
        let limit = EXPIRY.max(self.settings.interval.saturating_mul(3));
        let now = self.clock.now();
        let writes = self.writes.lock();
        if !*writes {
            return;
        }
        for (slot, _) in self.slots.iter().filter(|(_, updated)| now.saturating_sub(*updated) > limit) {
            R::write(slot, None);
        }
    }

    fn report(&mut self, error: &ScrapeError) {
        self.metrics.count_source_error(self.kind, error.reason());
        if core::mem::replace(&mut self.is_failing, true) {
            return;
        }
        let (source, address) = (self.kind.as_str(), self.address);
        if error.reason() == Reason::NoMetrics {
            tracing::warn!(source, %address, "the response has no value for some endpoints");
        } else {
            tracing::warn!(source, %address, %error, "scrapes of a data source fail");
        }
    }
}
