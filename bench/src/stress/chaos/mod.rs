//! Steady load while one thing after another breaks, for `make chaos`: which requests were lost, and how soon
//! the full rules are back.
//!
//! A request is **servable** if a working server could have served it:
//!
//! - one that reaches a server which dies, closes its port or resets it is servable as long as no byte of a
//!   response has come, because Envoy then tries another server; after the first byte it is not, because the
//!   client has a part of the response; a stream is then servable all the same where streams are resumed;
//! - one that a server has accepted and never responds to is not: a server that hangs looks like one that
//!   computes;
//! - one whose proxy is killed is servable as long as no byte of a response has come, because the client, in
//!   the place of a load balancer, then sends it to another proxy; after the first byte it is not;
//! - with flow control, one that the queue refuses with a documented status and reason is not, because the
//!   queue has no room for it;
//! - every other one is servable, whatever happens to other servers, agents, their files, the store, other
//!   clients or Envoy.
//!
//! At least two servers work at any time, and one proxy. A servable request that was not served is *lost*.
//!
//! The **full rules** are back when fresh requests to every proxy go where the metrics point: after each
//! fault the server that it concerned becomes the best one, and the time is taken until five requests in a
//! row go there. Several proxies **agree** when each finds what was sent through another one in the servers'
//! caches.

pub(super) mod agreement;
mod breakage;
mod fault;
pub(super) mod queue;
mod recovery;
mod servable;
mod table;

use self::breakage::Place;
use self::fault::Fault;
use self::servable::FaultLog;
use self::table::ChaosTable;
use super::proxies::{Calm, Proxies};
use super::stack::SERVERS;
use crate::load::senders::BANDS;
use crate::load::{MixedLoad, RequestMix};
use anyhow::Result;
use endpoint_picker::rng::{Rng, SplitMix64};
use std::time::{Duration, Instant};

/// Some blocks of the prefix index.
const PROMPT_BYTES: usize = 900;
/// No fault is shorter, unless its kind sets the duration.
const SHORTEST: Duration = Duration::from_millis(500);
/// Calm between two faults.
const CALM: Duration = Duration::from_millis(500);

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChaosPlan {
    /// How long faults are begun.
    pub(crate) lasting: Duration,
    /// The longest fault, unless its kind sets the duration; at least half a second.
    pub(crate) longest: Duration,
    /// Determines the order of faults, how long each lasts, which server and proxy it concerns, and the mix
    /// of requests.
    pub(crate) seed: u64,
    /// Several share through a store.
    pub(crate) proxies: usize,
    /// Requests wait in a queue, and `rate` is more than the servers have places for.
    pub(crate) has_flow_control: bool,
    /// Streams are resumed.
    pub(crate) resumes_streams: bool,
    /// Workers of each Envoy.
    pub(crate) workers: u32,
    /// Requests each second.
    pub(crate) rate: u32,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct ChaosOutcome {
    /// Servable requests that were not served.
    pub(crate) lost: usize,
    /// Recoveries that took longer than they should.
    pub(crate) late: usize,
    /// Whether the full rules came back after every fault, and the proxies agreed again.
    pub(crate) all_recovered: bool,
    /// Whether nothing waited and nothing was in flight when all requests had ended.
    pub(crate) is_idle: bool,
}

/// Runs the plan and prints what happened. Panics when a stack cannot be started, or a file of it cannot be
/// written.
pub(crate) async fn run(plan: ChaosPlan) -> Result<ChaosOutcome> {
    let ChaosPlan { lasting, longest, seed, proxies, has_flow_control, resumes_streams, workers, rate } =
        plan;
    let mut rng = SplitMix64::new(seed);
    let (mut faults, mut table) = (FaultLog::new(has_flow_control, resumes_streams), ChaosTable::default());
    let calm = if has_flow_control { queue::calm(rate)? } else { Calm::without_queue(resumes_streams)? };
    let mut proxies = Proxies::start(proxies, workers, calm).await?;

    let mix = RequestMix::new(proxies.mixed().to_vec(), PROMPT_BYTES);
    let mix = if has_flow_control { mix.with_senders(queue::sender) } else { mix };
    let load = MixedLoad::start(mix, rate, seed);
    let end = Instant::now() + lasting;
    let (mut round, mut waiting) = (Vec::new(), Vec::new());
    while Instant::now() < end {
        tokio::time::sleep(CALM).await;
        if round.is_empty() {
            round = shuffled(Fault::of(proxies.stacks().len()), &mut rng);
        }
        let Some(fault) = round.pop() else { break };
        let place = Place { server: 1 + rng.below(SERVERS - 1), proxy: rng.below(proxies.stacks().len()) };
        let lasting = SHORTEST + longest.saturating_sub(SHORTEST).mul_f64(rng.unit());
        if has_flow_control {
            waiting.push(queue::until_full(&proxies).await?);
        }
        load.enter(fault.name());
        let begin = Instant::now();
        let broken = breakage::begin(fault, place, &mut proxies).await?;
        tokio::time::sleep(fault.lasting(lasting)).await;
        broken.end(&mut proxies).await?;
        faults.add(fault, address(fault, place, &proxies), begin);
        let recovery = recovery::until_preferred(&proxies, place.server).await;
        eprintln!("{:<48} {:>6.0} ms to recover", fault.name(), recovery.as_secs_f64() * 1e3);
        table.add_recovery(fault.name(), recovery);
        if proxies.stacks().len() > 1 {
            let agreement = agreement::until_agreed(&proxies).await;
            eprintln!("{:<48} {:>6.0} ms to agree", "", agreement.as_secs_f64() * 1e3);
            table.add_agreement(fault.name(), agreement);
        }
        faults.take_requests(proxies.servers());
    }
    load.enter("calm");
    let phases = load.stop().await;
    let is_idle = agreement::until_idle(&proxies).await;
    faults.take_requests(proxies.servers());
    let lost = table.add_phases(phases, &faults);
    println!("{}:\n", description(&proxies, plan));
    table.print();
    print_waiting(&waiting);
    if resumes_streams {
        println!("streams were resumed {} times", proxies.resumed_streams().await?);
    }
    if let Err(reason) = &is_idle {
        println!("{reason:#}");
    }
    let all_recovered = table.slowest() < recovery::GIVE_UP;
    if lost > 0 || is_idle.is_err() || !all_recovered {
        for logs in proxies.keep_logs() {
            println!("logs are kept in {}", logs.display());
        }
    }
    Ok(ChaosOutcome { lost, late: table.late(), all_recovered, is_idle: is_idle.is_ok() })
}

/// Every fault once.
fn shuffled(mut faults: Vec<Fault>, rng: &mut SplitMix64) -> Vec<Fault> {
    for last in (1..faults.len()).rev() {
        faults.swap(last, rng.below(last + 1));
    }
    faults
}

/// The address of the proxy that a fault concerns, or else of the server.
fn address(fault: Fault, place: Place, proxies: &Proxies) -> String {
    match fault {
        Fault::ProxyKilled => proxies.stacks()[place.proxy].envoy().listener().to_string(),
        _ => proxies.servers()[place.server].endpoint(),
    }
}

fn description(proxies: &Proxies, plan: ChaosPlan) -> String {
    let ChaosPlan { has_flow_control, resumes_streams, workers, rate, .. } = plan;
    let filter = proxies.stacks().first().map_or_else(String::new, |stack| stack.filter().to_string());
    let queue = if has_flow_control { " with flow control" } else { "" };
    let resumptions = if resumes_streams { " that resumes streams" } else { "" };
    let several = match proxies.stacks().len() {
        1 => String::new(),
        several => format!("{several} proxies, "),
    };
    format!("{filter} filter{queue}{resumptions}, {several}{workers} workers, {rate} requests/s")
}

/// How many requests of each band waited when faults began.
fn print_waiting(waiting: &[queue::Waiting]) {
    for (band, name) in BANDS.iter().enumerate().filter(|_| !waiting.is_empty()) {
        let requests = || waiting.iter().map(|bands| bands[band]);
        let [least, most] = [requests().min(), requests().max()].map(Option::unwrap_or_default);
        println!("band {name}: {least} to {most} requests waited when a fault began");
    }
}
