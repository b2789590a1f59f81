//! Steady load while one thing after another breaks, for `make chaos`: what was lost, and how soon the full rules are back.
//!
//! A request is **servable** if a server that works could have served it:
//!
//! - one that reaches a server which dies, closes its port or resets it is servable as long as no byte of an answer has come,
//!   because Envoy then tries another server; after the first byte it is not, because the client has a part of the answer;
//! - one that a server has taken and never answers is not: nobody can tell a server that hangs from one that thinks;
//! - every other one is servable, whatever happens to other servers, the agent, its files, other clients or Envoy.
//!
//! At least two servers work at any time. A servable request that was not served is *lost*.
//!
//! The **full rules** are back when fresh requests go where the metrics point: after each fault the server that was concerned
//! is made the best one, and the time is taken until five requests in a row go there.

mod breakage;
mod fault;
mod judge;
mod probe;
mod report;

use crate::model_server::ModelServer;
use crate::stack::Stack;
use crate::traffic::{Load, Range};
use anyhow::Result;
use endpoint_picker::rng::{Rng, SplitMix64};
use fault::Fault;
use judge::Judge;
use report::Report;
use std::time::{Duration, Instant};

/// Model servers; the first is never broken.
const SERVERS: usize = 4;
/// Some blocks of the prefix index.
const PROMPT_BYTES: usize = 900;
/// No fault is shorter, unless its nature says so.
const SHORTEST: Duration = Duration::from_millis(500);
/// Calm between two faults.
const CALM: Duration = Duration::from_millis(500);

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long faults are begun.
    pub lasting: Duration,
    /// How long one may last, unless its nature says how long; at least half a second.
    pub longest: Duration,
    /// Decides the order of faults, how long each lasts, which server it meets, and the mix of requests.
    pub seed: u64,
    /// Envoy's workers.
    pub workers: u32,
    /// Requests each second.
    pub rate: u32,
}

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    /// Servable requests that were not served.
    pub lost: usize,
    /// Recoveries that took longer than they should.
    pub late: usize,
    /// The longest of them, half a minute if the full rules did not come back.
    pub slowest: Duration,
}

/// Runs the plan and prints what happened.
///
/// # Panics
///
/// When the stack cannot be started, or a file of it cannot be written.
pub async fn run(plan: Plan) -> Result<Outcome> {
    let builder = Stack::builder().servers(SERVERS).workers(plan.workers).manifests(breakage::MANIFEST);
    let mut stack = builder.can_hot_restart().start().await;
    for server in stack.servers() {
        server.behave(breakage::AS_USUAL);
    }
    let mut rng = SplitMix64::new(plan.seed);
    let mut judge = Judge::default();
    let mut report = Report::default();

    let load = Load::start(Range::new(&stack, PROMPT_BYTES), plan.rate, plan.seed);
    let end = Instant::now() + plan.lasting;
    let mut round = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep(CALM).await;
        if round.is_empty() {
            round = shuffled(&mut rng);
        }
        let Some(fault) = round.pop() else { break };
        let server = 1 + rng.below(SERVERS - 1);
        let lasting = SHORTEST + plan.longest.saturating_sub(SHORTEST).mul_f64(rng.unit());
        load.enter(fault.name());
        let begin = Instant::now();
        let broken = breakage::begin(fault, server, &mut stack).await?;
        tokio::time::sleep(fault.lasting(lasting)).await;
        broken.end(&mut stack).await?;
        judge.struck(fault, &stack.servers()[server].endpoint(), begin);
        let recovery = probe::until_preferred(&stack, server).await;
        judge.learn(&stack);
        report.recovered(fault.name(), recovery);
        eprintln!("{:<48} {:>6.0} ms to recover", fault.name(), recovery.as_secs_f64() * 1e3);
    }
    load.enter("calm");
    let tally = load.stop().await;
    judge.learn(&stack);
    let lost = report.add(tally, &judge);
    report.print();
    let (late, slowest) = (report.late(), report.slowest());
    if lost > 0 {
        println!("logs are kept in {}", stack.keep_logs().display());
    }
    Ok(Outcome { lost, late, slowest })
}

/// Every fault once.
fn shuffled(rng: &mut SplitMix64) -> Vec<Fault> {
    let mut faults = Fault::ALL.to_vec();
    for last in (1..faults.len()).rev() {
        faults.swap(last, rng.below(last + 1));
    }
    faults
}

/// The addresses of all servers but one.
fn without(stack: &Stack, server: usize) -> Vec<std::net::SocketAddr> {
    let others = stack.servers().iter().enumerate().filter(|(index, _)| *index != server);
    others.map(|(_, server)| ModelServer::address(server)).collect()
}
