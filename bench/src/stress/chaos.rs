//! Steady load while one thing after another breaks, for `make chaos`: which requests were lost, and how soon the full rules are
//! back.
//!
//! A request is **servable** if a working server could have served it:
//!
//! - one that reaches a server which dies, closes its port or resets it is servable as long as no byte of an answer has come,
//!   because Envoy then tries another server; after the first byte it is not, because the client has a part of the answer;
//! - one that a server has accepted and never answers is not: a server that hangs looks like one that computes;
//! - every other one is servable, whatever happens to other servers, the agent, its files, other clients or Envoy.
//!
//! At least two servers work at any time. A servable request that was not served is *lost*.
//!
//! The **full rules** are back when fresh requests go where the metrics point: after each fault the server that it concerned
//! becomes the best one, and the time is taken until five requests in a row go there.

use super::chaos_table::ChaosTable;
use super::fault::Fault;
use super::servable::FaultLog;
use super::{breakage, recovery, stack};
use crate::load::{MixedLoad, RequestMix};
use anyhow::Result;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_harness::objectives;
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
    /// Determines the order of faults, how long each lasts, which server it concerns, and the mix of requests.
    pub(crate) seed: u64,
    /// Envoy's workers.
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
    /// Whether the full rules came back after every fault.
    pub(crate) all_recovered: bool,
}

/// Runs the plan and prints what happened. Panics when the stack cannot be started, or a file of it cannot be written.
pub(crate) async fn run(plan: ChaosPlan) -> Result<ChaosOutcome> {
    let builder = stack::builder(plan.workers).manifests(objectives::MANIFEST);
    let mut stack = builder.can_hot_restart().start().await;
    for server in stack.servers() {
        server.behave(breakage::NORMAL);
    }
    let mut rng = SplitMix64::new(plan.seed);
    let mut faults = FaultLog::default();
    let mut table = ChaosTable::default();

    let load = MixedLoad::start(RequestMix::new(&stack, PROMPT_BYTES), plan.rate, plan.seed);
    let end = Instant::now() + plan.lasting;
    let mut round = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep(CALM).await;
        if round.is_empty() {
            round = shuffled(&mut rng);
        }
        let Some(fault) = round.pop() else { break };
        let server = 1 + rng.below(stack::SERVERS - 1);
        let lasting = SHORTEST + plan.longest.saturating_sub(SHORTEST).mul_f64(rng.unit());
        load.enter(fault.name());
        let begin = Instant::now();
        let broken = breakage::begin(fault, server, &mut stack).await?;
        tokio::time::sleep(fault.lasting(lasting)).await;
        broken.end(&mut stack).await?;
        faults.add(fault, &stack.servers()[server].endpoint(), begin);
        let recovery = recovery::until_preferred(&stack, server).await;
        faults.take_requests(&stack);
        table.add_recovery(fault.name(), recovery);
        eprintln!("{:<48} {:>6.0} ms to recover", fault.name(), recovery.as_secs_f64() * 1e3);
    }
    load.enter("calm");
    let phases = load.stop().await;
    faults.take_requests(&stack);
    let lost = table.add_phases(phases, &faults);
    println!("{} filter, {} workers, {} requests/s:\n", stack.filter(), plan.workers, plan.rate);
    table.print();
    if lost > 0 {
        println!("logs are kept in {}", stack.keep_logs().display());
    }
    Ok(ChaosOutcome { lost, late: table.late(), all_recovered: table.slowest() < recovery::GIVE_UP })
}

/// Every fault once.
fn shuffled(rng: &mut SplitMix64) -> Vec<Fault> {
    let mut faults = Fault::ALL.to_vec();
    for last in (1..faults.len()).rev() {
        faults.swap(last, rng.below(last + 1));
    }
    faults
}
