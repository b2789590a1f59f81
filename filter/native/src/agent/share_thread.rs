//! A thread that exchanges changes with other proxies, over connections of its own: a poll would keep them back.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::io;
use std::panic::catch_unwind;
use std::sync::Arc;

use endpoint_picker::period::Period;
use endpoint_picker_engine::agent::{CallError, CallId};

use super::connection::Connection;
use super::sharer::Sharer;
use super::stop::Stop;
use super::thread::Thread;
use crate::clock;
use crate::config::AgentAccess;

/// The number of every request: there is never more than one.
const CALL: CallId = 0;

/// Longest time between two rounds, in which the loads of proxies that have vanished are dropped. An agent that does not share is asked
/// again every few seconds, so nothing else happens in most rounds.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Time between two rounds while no exchange can begin, because no snapshot has arrived yet.
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// How long another agent of the list is used before the first one is tried again: proxies share through one agent.
const FIRST_AGENT_AFTER: Duration = Duration::from_secs(5);

/// Starts a thread that exchanges a pool's changes.
pub(crate) fn start(mut sharer: Sharer, access: &AgentAccess) -> io::Result<Thread> {
    let access = access.clone();
    Thread::start("epp-share", move |stop| {
        let mut connection = Connection::new(&access, Arc::clone(stop));
        let mut other_agent = Period::default();
        while !stop.is_stopped() {
            let round = catch_unwind(AssertUnwindSafe(|| {
                round(&mut sharer, &mut connection, &mut other_agent, stop)
            }));
            if round.is_err() && sharer.awaits(CALL) {
                // The panic was logged when it happened.
                sharer.finish(Err(CallError::NoAnswer("a defect of the picker".to_owned())), clock::now());
            }
            let least = if round.unwrap_or(false) { Duration::ZERO } else { IDLE_PAUSE };
            stop.wait(sharer.pause(clock::now()).clamp(least, LONGEST_PAUSE));
        }
    })
}

/// Sends the exchange that is due. Returns whether there was one. While `other_agent` lasts, another agent than the first is used.
fn round(sharer: &mut Sharer, connection: &mut Connection, other_agent: &mut Period, stop: &Stop) -> bool {
    let now = clock::now();
    let Some(exchange) = sharer.next_exchange(now) else { return false };
    if !other_agent.contains(now) {
        connection.use_first();
    }
    sharer.sent(CALL);
    let answer = connection.send(&exchange, now);
    if !stop.is_stopped() && !sharer.finish(answer, clock::now()) {
        connection.use_next();
        *other_agent = Period::new(now, FIRST_AGENT_AFTER);
    }
    true
}
