//! A thread that sends the requests of a link, over connections of its own.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::io;
use std::panic::catch_unwind;
use std::sync::Arc;

use endpoint_picker_engine::agent::Link;

use super::connection::Connection;
use super::updated_pool::UpdatedPool;
use crate::config::AgentAccess;
use crate::process::clock;
use crate::process::thread::Stop;
use crate::process::thread::Thread;

/// Maximum time between two rounds, in which the loads of proxies that have vanished are dropped.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Time between two rounds while no exchange can begin, because no snapshot has arrived yet.
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// Time between two checks whether a snapshot can be adopted.
const ADOPTION_PAUSE: Duration = Duration::from_millis(1);

/// Starts a thread of this name. `each_round` runs after each request, and at least four times a second while
/// none is sent. The thread's end takes up to a second if it is connecting to an agent; anything else is
/// interrupted.
pub(crate) fn start(
    name: &str,
    mut link: Link,
    mut pool: UpdatedPool,
    access: &AgentAccess,
    mut each_round: impl FnMut() + Send + 'static,
) -> io::Result<Thread> {
    let access = access.clone();
    Thread::start(name, move |stop| {
        let mut connection = Connection::new(&access, Arc::clone(stop));
        while !stop.is_stopped() {
            let sent = catch_unwind(AssertUnwindSafe(|| send(&mut link, &mut pool, &mut connection, stop)));
            if sent.is_err() {
                // The panic was logged when it happened.
                link.fail(&mut pool, clock::now());
            }
            each_round();
            if !sent.unwrap_or(false) {
                stop.wait(pause(&link, &pool));
            }
        }
    })
}

/// Sends a request that is due. Returns whether there was one: polls of an agent that holds them follow one another without a pause.
fn send(link: &mut Link, pool: &mut UpdatedPool, connection: &mut Connection, stop: &Stop) -> bool {
    let Some(call) = link.due(pool, clock::now()) else { return false };
    let response = connection.send(call.agent, &call.request, clock::now());
    // The stop has interrupted the request, so its failure says nothing about the agent.
    if !stop.is_stopped() {
        link.finish(call.id, response, pool, clock::now());
    }
    true
}

fn pause(link: &Link, pool: &UpdatedPool) -> Duration {
    if pool.is_adopting() {
        return ADOPTION_PAUSE;
    }
    match link.pause(clock::now()) {
        Duration::ZERO => IDLE_PAUSE,
        pause => pause.min(MAX_PAUSE),
    }
}
