//! Looks the names up when they are due, and publishes the endpoint set.

use std::collections::BTreeSet;
use std::sync::Arc;

use metrics_agent_support::runtime::ResultCounter;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::named_servers::{Resolved, Unresolved, resolved};
use super::{Declared, DeclaredSet, EndpointSet, LeftOut, LeftOutMetrics, NoEndpoints};
use crate::names::table::{Answer, LookupFailure, NameTable};
use crate::names::{HostName, Resolver};

/// Maximum number of lookups at the same time.
const MAX_LOOKUPS: usize = 16;

/// Keeps the endpoint set equal to the declared servers and the addresses of their names.
pub(super) struct Follower {
    pub(super) resolver: Arc<Resolver>,
    pub(super) max_endpoints: usize,
    pub(super) sets: watch::Sender<EndpointSet>,
    pub(super) unresolved: watch::Sender<Arc<[Unresolved]>>,
    pub(super) denied: watch::Sender<Arc<BTreeSet<String>>>,
    pub(super) left_out: LeftOutMetrics,
    pub(super) lookups: ResultCounter,
}

type Lookups = JoinSet<(HostName, Result<Answer, LookupFailure>)>;

impl Follower {
    pub(super) async fn run(self, mut declared: watch::Receiver<DeclaredSet>) {
        let mut table = NameTable::default();
        let mut lookups = Lookups::new();
        let mut left_out = LeftOut::default();
        loop {
            let set = declared.borrow_and_update().clone();
            match &set {
                Ok(set) => {
                    table.keep(set.named.iter().map(|server| &server.host), Instant::now());
                    self.publish(set, &table, &mut left_out);
                }
                Err(reason) => {
                    let _ = self.sets.send_replace(Err(reason.clone()));
                }
            }
            self.wait_for_change(&mut declared, &mut table, &mut lookups).await;
        }
    }

    /// Publishes the endpoints, at the start not before every name was looked up once.
    fn publish(&self, set: &Declared, table: &NameTable, left_out: &mut LeftOut) {
        let has_set = self.sets.borrow().is_ok();
        if !has_set && !table.is_complete() {
            let _ = self
                .sets
                .send_replace(Err(NoEndpoints::Pending("the host names were not looked up yet".to_owned())));
            return;
        }
        let of_servers = resolved(&set.endpoints, &set.named, |host| table.get(host), self.max_endpoints);
        let Resolved { endpoints, denied, left_out: left } = of_servers;
        if *left_out != left {
            left.log("host names");
            self.left_out.set("host_names", core::iter::once(&left));
            *left_out = left;
        }
        self.denied.send_if_modified(|published| {
            let changed = **published != denied;
            *published = Arc::new(denied);
            changed
        });
        let unresolved = set.named.iter().filter_map(|server| {
            let state = table.get(&server.host)?;
            let problem = state.problem()?.to_owned();
            let (placeholder, host) = (server.placeholder(), server.host.clone());
            let (addresses, is_denied) = (state.addresses().len(), state.is_denied());
            Some(Unresolved { placeholder, host, addresses, is_denied, problem })
        });
        let _ = self.unresolved.send_replace(unresolved.collect());
        self.sets.send_if_modified(|published| {
            let changed = published.as_ref() != Ok(&endpoints);
            *published = Ok(endpoints);
            changed
        });
    }

    /// Looks names up until the endpoints or their problems may have changed.
    async fn wait_for_change(
        &self,
        declared: &mut watch::Receiver<DeclaredSet>,
        table: &mut NameTable,
        lookups: &mut Lookups,
    ) {
        loop {
            let free = MAX_LOOKUPS.saturating_sub(lookups.len());
            for (host, last) in table.begin(Instant::now(), free) {
                let resolver = Arc::clone(&self.resolver);
                lookups.spawn(async move {
                    let result = resolver.lookup(&host, &last).await;
                    (host, result)
                });
            }
            let next = table.next_due().filter(|_| lookups.len() < MAX_LOOKUPS);
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => core::future::pending().await,
                }
            };
            tokio::select! {
                changed = declared.changed() => match changed {
                    Ok(()) => return,
                    Err(_) => core::future::pending().await,
                },
                Some(looked_up) = lookups.join_next() => {
                    // A panic in a lookup panics in this task too, so that the agent ends.
                    let (host, result) = looked_up.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
                    if self.record(table, &host, result) {
                        return;
                    }
                }
                () = due => {}
            }
        }
    }

    /// Records a result, and logs what has changed.
    fn record(&self, table: &mut NameTable, host: &HostName, result: Result<Answer, LookupFailure>) -> bool {
        self.lookups.count(result.is_ok());
        let changed = table.record(host, result, Instant::now());
        if let Some(state) = table.get(host).filter(|_| changed) {
            let addresses = state.addresses();
            match state.problem() {
                None => tracing::info!(%host, ?addresses, "host name resolved"),
                Some(problem) if addresses.is_empty() => {
                    tracing::error!(%host, problem, "the host name was never resolved; it has no endpoints");
                }
                Some(problem) if state.is_denied() => tracing::warn!(
                    %host, problem, ?addresses,
                    "host name denied again and again; its last addresses serve only while no other endpoint is ready"
                ),
                Some(problem) => {
                    tracing::warn!(%host, problem, ?addresses, "host name not resolved; its last addresses stay");
                }
            }
        }
        changed
    }
}
