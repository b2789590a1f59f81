//! The tasks that follow the events of all servers.

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use hyper::Uri;
use hyper::header::HeaderValue;
use metrics_agent_catalogue::plan::members::Member;
use metrics_agent_catalogue::scraping::{ScrapePlan, ScrapeSettings};
use metrics_agent_scrape::client::Client;
use metrics_agent_scrape::download::BodyReader;
use metrics_agent_scrape::model_list;
use metrics_agent_support::client::credentials::ClientCredentials;
use metrics_agent_support::runtime::Tasks;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::follower::EventFollower;
use super::index::{Index, KeyedModel};
use super::models::ServedModel;
use super::share::ServerShare;
use super::sources::{self, EventSource, NoSource, PATHS};
use super::{CacheStatus, FollowedServer, KvEvents, Ports, Stream};

/// Time between two questions to a server where it publishes.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// The same after a connection has ended, or without a response.
const ASK_SOON: Duration = Duration::from_secs(5);

/// The tasks that follow the events of all servers.
pub struct Subscribers {
    events: Arc<KvEvents>,
    credentials: Arc<ClientCredentials>,
    tasks: Tasks,
    running: HashMap<SubscriberJob, AbortOnDropHandle<()>>,
}

/// Everything that a task depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SubscriberJob {
    server: SocketAddr,
    rank: u16,
    settings: Arc<ScrapeSettings>,
    /// A new pod is a new server.
    pod: Option<Arc<str>>,
}

impl Subscribers {
    /// Follows nothing until [`Self::set`] is called. `credentials` must have TLS if a pool is scraped over
    /// TLS.
    pub fn new(events: Arc<KvEvents>, credentials: &Arc<ClientCredentials>, tasks: Tasks) -> Self {
        Self { events, credentials: Arc::clone(credentials), tasks, running: HashMap::new() }
    }

    /// Follows the endpoints of these pools from now on, each as its pool is scraped. An endpoint that stays
    /// keeps its connection.
    pub fn set<'a>(&mut self, pools: impl IntoIterator<Item = (&'a str, &'a [Member], &'a ScrapePlan)>) {
        let mut before = core::mem::take(&mut self.running);
        let mut servers = HashSet::new();
        let mut names = HashSet::new();
        for (name, members, plan) in pools {
            names.insert(name);
            for member in members {
                let job = SubscriberJob {
                    server: member.endpoint.address(),
                    rank: member.rank().unwrap_or(0),
                    settings: Arc::clone(&plan.settings),
                    pod: member.pod_uid(),
                };
                // A server is followed once, in however many pools it is.
                if servers.insert(job.server) {
                    let task = before.remove(&job).unwrap_or_else(|| self.start(&job));
                    self.running.insert(job, task);
                }
            }
        }
        self.events.servers.lock().retain(|server, _| servers.contains(server));
        self.events.readers.lock().retain(|pool, _| names.contains(pool.as_str()));
        // Readers of a pool get its endpoints with each message.
        self.events.advance();
    }

    fn start(&self, job: &SubscriberJob) -> AbortOnDropHandle<()> {
        let server = Arc::<FollowedServer>::default();
        self.events.servers.lock().insert(job.server, Arc::clone(&server));
        let task = ServerTask {
            events: Arc::clone(&self.events),
            job: job.clone(),
            server,
            client: Client::new(Arc::clone(&self.credentials)),
            tasks: self.tasks.clone(),
            share: Arc::default(),
            ended: Arc::default(),
        };
        self.tasks.spawn(format!("KV-cache events of {}", job.server), task.run())
    }
}

/// Follows all caches of one server.
struct ServerTask {
    events: Arc<KvEvents>,
    job: SubscriberJob,
    server: Arc<FollowedServer>,
    client: Client,
    tasks: Tasks,
    share: Arc<ServerShare>,
    /// Notified when a connection has ended.
    ended: Arc<Notify>,
}

/// The sources of a server that are followed, and the model of their caches.
#[derive(Default)]
struct Following {
    sources: Vec<EventSource>,
    model: Option<Arc<KeyedModel>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

fn scope(model: Option<&Arc<KeyedModel>>) -> Option<u64> {
    model.map(|model| model.scope())
}

impl ServerTask {
    async fn run(mut self) {
        let mut following = Following::default();
        loop {
            let sources = self.sources().await;
            let problem = sources.as_ref().err().cloned();
            let pause = if problem.is_some() { ASK_SOON } else { ASK_AGAIN };
            let model = self.ask_for_model().await;
            if let Ok(sources) = sources
                && (sources != following.sources || scope(model.as_ref()) != scope(following.model.as_ref()))
            {
                drop(core::mem::take(&mut following));
                following = self.follow(sources, model);
            }
            let before = core::mem::replace(&mut *self.server.problem.lock(), problem.clone());
            if let Some(problem) = problem.filter(|problem| before.as_ref() != Some(problem)) {
                tracing::warn!(server = %self.job.server, problem, "no source of KV-cache events");
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = self.ended.notified() => sleep(ASK_SOON).await,
            }
        }
    }

    /// Asks the server for its models. Returns the model by which its prefixes have keys, which stays while
    /// the server does not respond.
    async fn ask_for_model(&mut self) -> Option<Arc<KeyedModel>> {
        let list = self.ask("/v1/models").await.ok().and_then(|body| model_list::entries(&body));
        let before = self.server.model.lock().clone();
        let model = match list {
            Some(list) => {
                let KvEvents { tokenizers, by_token_ids, .. } = &*self.events;
                ServedModel::of_list(list, tokenizers, by_token_ids).await.map(Arc::new)
            }
            None => before.clone(),
        };
        let is_same = match (&before, &model) {
            (Some(before), Some(model)) => before.is_same(model),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_same {
            if let Some(problem) = model.as_ref().and_then(|model| model.tokenizer.as_ref().err()) {
                tracing::info!(server = %self.job.server, problem, "cached prefixes are not known by their text");
            }
            self.server.model.lock().clone_from(&model);
            self.events.advance();
        }
        model?.keyed()
    }

    /// Starts to follow these sources of a server with this model.
    fn follow(&self, sources: Vec<EventSource>, model: Option<Arc<KeyedModel>>) -> Following {
        let add = |source: &EventSource| {
            let add = |index: &mut Index| index.add_rank(self.job.server, source.rank, model.clone());
            let id = self.events.update(add);
            Arc::new(CacheStatus { id, stream: Stream::default().into() })
        };
        let caches: Vec<_> = sources.iter().map(add).collect();
        self.server.caches.lock().clone_from(&caches);
        let tasks = sources.iter().zip(caches).map(|(source, cache)| {
            let events = Arc::clone(&self.events);
            let (share, ended) = (Arc::clone(&self.share), Arc::clone(&self.ended));
            let follower = EventFollower::new(events, cache, source.clone(), share, ended);
            self.tasks.spawn(format!("KV-cache events at {}", source.events), follower.run())
        });
        let tasks = tasks.collect();
        Following { sources, model, _tasks: tasks }
    }

    /// Where the server publishes, or why that is not known.
    async fn sources(&mut self) -> Result<Vec<EventSource>, String> {
        let SubscriberJob { server, rank, .. } = self.job;
        if let Ports::Fixed { events, replay } = self.events.ports {
            let source = sources::of_ports(server.ip(), events.get(), replay.map(NonZeroU16::get), rank);
            return source.map(|source| vec![source]).ok_or_else(|| format!("no port for rank {rank}"));
        }
        let mut problem = String::new();
        for (path, read) in PATHS {
            match self.ask(path).await.map(|body| read(&body, server.ip())) {
                Ok(Err(NoSource::Malformed)) if problem.is_empty() => {
                    problem = NoSource::Malformed.to_string();
                }
                Ok(Err(NoSource::Malformed)) => {}
                Ok(sources) => return sources.map_err(|no_source| no_source.to_string()),
                Err(error) if problem.is_empty() => problem = format!("GET {path}: {error}"),
                Err(_) => {}
            }
        }
        Err(problem)
    }

    /// The server's response at a path.
    async fn ask(&mut self, path: &'static str) -> Result<Vec<u8>, String> {
        let path = Uri::from_static(path);
        let settings = ScrapeSettings { path, ..(*self.job.settings).clone() };
        let mut body = LimitedBody::default();
        let get = self.client.get(self.job.server, &settings, &mut body);
        let got = timeout(settings.timeout, get).await;
        got.map_err(|_| format!("no response within {:?}", settings.timeout))?
            .map_err(|error| error.to_string())?;
        Ok(body.0)
    }
}

/// The body of a server's response. The client limits its length.
#[derive(Default)]
struct LimitedBody(Vec<u8>);

impl BodyReader for LimitedBody {
    fn accept(&self) -> HeaderValue {
        HeaderValue::from_static("application/json")
    }

    fn start(&mut self) {
        self.0.clear();
    }

    fn feed(&mut self, chunk: &[u8]) {
        self.0.extend_from_slice(chunk);
    }

    /// Such a response has none.
    fn series(&self) -> usize {
        0
    }
}
